"""A Flower app of the same training; `flower_run.py` runs it in the engine.

Written like Flower's own guide: a `ClientApp`, a `ServerApp` with its FedAvg, the Ray backend with one core
per client. The clients' loop is that of our floor. The server tests the model only if the job names test
data; without it, Flower omits work that our simulation does in addition to its rounds.
"""

import json
import os
import time
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from torch import nn
from torch.nn import functional

client = ClientApp()
server = ServerApp()
CHANNELS_LAST = torch.channels_last
ended: list[float] = []
processor: list[float] = []
"""Processor time when each round has been aggregated."""
tested: list[tuple[float, float]] = []
"""The time of each test after a round, and the accuracy that it found."""


def job() -> dict:
    """The job; the environment gives the actors its path."""
    return json.loads(Path(os.environ["FLOWER_JOB"]).read_text())


def network(inputs: int, hidden: int, classes: int) -> nn.Module:
    """The layers of our network."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(inputs, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, classes),
    )


@lru_cache(maxsize=1)
def frozen() -> nn.Module:
    """The traced network whose outputs are a head's inputs, if the job has one."""
    return torch.jit.load(job()["frozen"]).eval()


def head(width: int, classes: int) -> nn.Module:
    """What is trained behind a frozen network."""
    return nn.Sequential(nn.Dropout(0.2), nn.Linear(width, classes))


def trained_network(plan: dict) -> nn.Module:
    """The network that travels."""
    return head(*plan["head"]) if "frozen" in plan else network(*plan["layers"])


@lru_cache(maxsize=1)
def data() -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Prepared images, labels and each client's indices; images are mapped, not copied."""
    folder = Path(job()["data"])
    order = np.load(folder / "order.npy")
    shares = np.split(order, np.load(folder / "ends.npy")[:-1])
    return np.load(folder / "inputs.npy", mmap_mode="r"), np.load(folder / "labels.npy"), shares


@client.train()
def train(message: Message, context: Context) -> Message:
    """Local epochs on the client's own share."""
    torch.set_num_threads(1)
    plan = job()
    images, labels, shares = data()
    share = shares[int(context.node_config["partition-id"])]
    inputs, wanted = torch.from_numpy(images[share]), torch.from_numpy(labels[share])
    module = trained_network(plan)
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(module.parameters(), lr=plan["learning_rate"], momentum=plan["momentum"])
    for _ in range(plan["epochs"]):
        for batch in torch.randperm(len(wanted)).split(plan["batch"]):
            optimizer.zero_grad(set_to_none=True)
            examples = inputs[batch]
            if "frozen" in plan:
                with torch.inference_mode():
                    examples = frozen()(examples.float().div_(255).contiguous(memory_format=CHANNELS_LAST))
                examples = examples.clone()
            functional.cross_entropy(module(examples), wanted[batch]).backward()
            optimizer.step()
    answer = {
        "arrays": ArrayRecord(module.state_dict()),
        "metrics": MetricRecord({"num-examples": len(wanted)}),
    }
    return Message(content=RecordDict(answer), reply_to=message)


class Timed(FedAvg):
    """FedAvg that records when each round has been aggregated."""

    def aggregate_train(self, server_round, replies):
        """Aggregate like FedAvg; raises `RuntimeError` unless every client has answered."""
        replies = list(replies)
        failed = [message.error.reason for message in replies if message.has_error()]
        if failed or len(replies) != round(job()["fraction"] * job()["clients"]):
            raise RuntimeError(f"{len(replies)} answers, {len(failed)} of them failed: {failed[:1]}")
        aggregated = super().aggregate_train(server_round, replies)
        ended.append(time.perf_counter())
        processor.append(processor_seconds())
        return aggregated


def processor_seconds() -> float:
    """The processor time so far of this process and of all that it and Ray have started."""
    parents, seconds = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        number = int(path.parent.name)
        parents[number], seconds[number] = int(fields[1]), int(fields[11]) + int(fields[12])
    family = {os.getpid()}
    while more := {number for number, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(seconds[number] for number in family) / os.sysconf("SC_CLK_TCK")


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """The accuracy on the server's test data, in batches of 256."""
    plan = job()
    folder = Path(plan["data"])
    inputs = torch.from_numpy(np.load(folder / "test-inputs.npy"))
    wanted = torch.from_numpy(np.load(folder / "test-labels.npy"))
    module = network(*plan["layers"]).eval()
    module.load_state_dict(arrays.to_torch_state_dict())
    with torch.inference_mode():
        outputs = torch.cat([module(part) for part in inputs.split(256)])
    accuracy = float((outputs.argmax(1) == wanted).float().mean())
    if server_round:
        tested.append((time.perf_counter(), accuracy))
    return MetricRecord({"accuracy": accuracy})


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds."""
    plan = job()
    # A share of the nodes would be that of those that have registered before the wait for all of them.
    strategy = Timed(
        fraction_train=plan["fraction"],
        fraction_evaluate=0.0,
        min_train_nodes=round(plan["fraction"] * plan["clients"]),
        min_available_nodes=plan["clients"],
    )
    arrays = ArrayRecord(trained_network(plan).state_dict())
    strategy.start(
        grid=grid,
        initial_arrays=arrays,
        num_rounds=plan["rounds"],
        evaluate_fn=evaluate if plan["tests"] else None,
    )
