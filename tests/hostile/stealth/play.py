"""Simulates a recipe in which some devices attack, and measures what they gain."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from edge_client.data.dataset import LabelledData
from edge_client.data.sources import load_source
from edge_client.models.build import build_model
from edge_client.training.evaluation import logits
from edge_client.training.trainer import Trained, Trainer, TrainingJob
from edge_server.config.load import load_config
from edge_server.simulation.client_work import ClientJob, ClientWork, Outcome, WorkSetup
from schemas.messages import TrainTask, Update, decode_message, decode_task, encode_message
from schemas.tensors.files import FileGroups
from schemas.values import ModelSpec, TrainerName
from tests.edge_server.simulation.in_process import InProcess
from tests.edge_server.simulation.liars import Sent
from tests.edge_server.simulation.remembered import RememberingTrainer
from tests.edge_server.simulation.small import SMALL, history, run
from tests.groups import encode_groups, read_groups
from tests.hostile.stealth.attacks import TARGET, Attack, Mark, View

WORDS = (
    "num-clients=5",
    "rounds=10",
    "evaluate-every=10",
    "local-epochs=3",
    "learning-rate=0.1",
    "batch-size=32",
    "deliver=none",
    # Training takes no time: the attackers, who come last, see the updates of all others.
    "simulation.clock=[]",
)


class PoisonedTrainer(RememberingTrainer):
    """Trains on changed data."""

    def __init__(self, change: Callable[[LabelledData], LabelledData]) -> None:
        super().__init__()
        self._change = change

    def train(self, job: TrainingJob) -> Trained:
        return super().train(replace(job, data=replace(job.data, train=self._change(job.data.train))))


class AttackingEngine(InProcess):
    """The last devices attack. Honest jobs are done at once: attackers know all updates of the round.

    Without an attack these devices are silent: they fail every task.
    """

    def __init__(self, setup: WorkSetup, attack: Attack | None, liars: Sequence[str]) -> None:
        super().__init__(setup)
        self._attack, self._liars = attack, frozenset(liars)
        self._done: dict[str, tuple[int, Outcome]] = {}
        change = Attack().data if attack is None else attack.data

        def poisoned(name: TrainerName) -> Trainer:
            return PoisonedTrainer(change)

        self._poisoned = ClientWork(setup, make=poisoned)

    def submit(self, job: ClientJob) -> ClientJob:
        task = decode_task(job.task)
        if isinstance(task, TrainTask) and (self._attack is not None or job.device not in self._liars):
            self._done[job.device] = task.round, self.bench.do(job)
        return job

    def result(self, handle: ClientJob, *, timeout_s: float) -> Outcome | None:
        task = decode_task(handle.task)
        if not isinstance(task, TrainTask):
            return super().result(handle, timeout_s=timeout_s)
        if handle.device not in self._liars:
            return self._done[handle.device][1]
        return Outcome(None) if self._attack is None else self._attacked(handle, task.round)

    def _attacked(self, job: ClientJob, number: int) -> Outcome:
        others = [
            self._groups(outcome)
            for device, (known, outcome) in sorted(self._done.items())
            if known == number and outcome.answer and device not in self._liars
        ]
        trained, truth = self._poisoned.do(job), self._groups(self._done[job.device][1])
        assert self._attack is not None
        assert trained.answer is not None
        sent = self._attack.change(View(self._groups(trained), truth, others, number))
        update = decode_message(trained.answer.encode())
        assert isinstance(update, Update)
        changed = update.model_copy(update={"blob": self.store.put_blob(encode_groups(sent))})
        return Outcome(encode_message(changed).decode())

    def _groups(self, outcome: Outcome) -> Sent:
        assert outcome.answer is not None
        update = decode_message(outcome.answer.encode())
        assert isinstance(update, Update)
        return read_groups(self.store.blob_path(update.blob.digest))


@dataclass(frozen=True)
class Result:
    """Accuracy of the model, share of stamped pictures called `TARGET`, refusals of liars and others."""

    accuracy: float
    stamped: float
    refused: int
    honest_refused: int


def play(out: Path, recipe: str, attack: Attack | None, *words: str, liars: int = 1) -> Result:
    """Simulate a recipe in which `liars` devices attack; without an attack they are silent."""
    config = load_config(recipe, [*SMALL, *WORDS, *words])
    count = config.clients.num_clients
    names = [f"device-{number:04}" for number in range(count - liars + 1, count + 1)]
    engine = partial(AttackingEngine, attack=attack, liars=names)
    summary = run(out, recipe, "strategy.uplink=[]", *WORDS, *words, engine=engine)
    refused = [each["device"] for line in history(out) for each in line["rejected"]]
    lying = sum(device in names for device in refused)
    assert summary.test_accuracy is not None, summary.outcome
    marked = _marked(out, config.model.name, (attack or Attack()).mark)
    return Result(summary.test_accuracy, marked, lying, len(refused) - lying)


def _marked(out: Path, network: str, mark: Mark) -> float:
    """The share of test pictures of other classes that the last model calls `TARGET` if marked."""
    data = load_source("digits", split="test")
    inputs = replace(data, images=mark(data.images)).inputs()
    model = build_model(ModelSpec(name=network, input_shape=inputs.shape[1:], num_classes=10))
    import torch

    state = FileGroups(sorted((out / "models").iterdir())[-1] / "state.safetensors")["model"]
    model.load_state_dict({name: torch.from_numpy(np.array(state[name])) for name in state}, strict=False)
    called = logits(model, inputs).argmax(axis=1)
    return float((called[data.labels != TARGET] == TARGET).mean())
