"""Flower apps in the style of Flower's documentation as local work; needs `flwr`."""

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

if importlib.util.find_spec("flwr") is None:
    pytest.skip("Flower is not installed: make test-flower", allow_module_level=True)

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp

from edge_client.agent.settings import TaskContext
from edge_client.agent.task_runner import do_training
from edge_client.training.flower.messages import FlowerError
from edge_client.training.flower.settings import FlowerSettings
from edge_client.training.flower.work import FlowerWork, load_app
from edge_client.training.results import TrainingStopped
from edge_client.training.torch_trainer import ModuleJob, TorchTrainer
from schemas.errors import ConfigError, PeerError, Reason
from schemas.strategy import Component, TrainingPlan
from tests.groups import decode_groups
from tests.integration.bench import Bench

PLAN = TrainingPlan(local_epochs=2, batch_size=4, learning_rate=0.1, seed=3)
Change = Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]


def plus_one(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Add one to every float."""
    return {name: tensor + 1 if tensor.is_floating_point() else tensor for name, tensor in state.items()}


def app_that(change: Change, **metrics: float) -> ClientApp:
    """An app that trains by applying `change` and reports these metrics."""
    app = ClientApp()

    @app.train()
    def train(msg: Message, context: Context) -> Message:
        state = change(dict(msg.content["arrays"].to_torch_state_dict()))
        figures = {"num-examples": 10, **metrics}
        content = {"arrays": ArrayRecord(state), "metrics": MetricRecord(figures)}
        return Message(content=RecordDict(content), reply_to=msg)

    return app


@pytest.fixture
def module() -> Iterator[ModuleType]:
    """An empty module for apps, importable as `made_up_app`."""
    made = ModuleType("made_up_app")
    sys.modules["made_up_app"] = made
    yield made
    del sys.modules["made_up_app"]


def work_of(module: ModuleType, app: Any, **settings: Any) -> FlowerWork:
    module.app = app  # type: ignore[attr-defined]
    return FlowerWork(FlowerSettings("made_up_app:app", **settings), "pi-3")


def placed(place: TaskContext, work: FlowerWork) -> TaskContext:
    """The context with a trainer of this app."""
    return replace(place, trainer=TorchTrainer(work))


def network() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))


def job(bench: Bench, net: torch.nn.Module, **fields: Any) -> ModuleJob:
    place = bench.places["weak"]
    values: dict[str, Any] = {
        "task": bench.tasks(1, 1)["weak"],
        "plan": PLAN,
        "module": net,
        "data": place.data,
        "received": {},
        "kept": {},
        "channel_map": bench.coordinator.context.channel_map,
        "board": place.board,
        "on_epoch": lambda _: None,
        "should_stop": lambda: False,
    }
    return ModuleJob(**(values | fields))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, "fedavg")


def test_the_module_contains_the_weights_trained_by_the_app(bench: Bench, module: ModuleType) -> None:
    net, seen = network(), []
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    work = work_of(module, app_that(plus_one, train_loss=0.25))
    result = work.train(job(bench, net, on_epoch=seen.append))
    for name, tensor in net.state_dict().items():
        assert torch.equal(tensor, before[name] + (1 if tensor.is_floating_point() else 0))
    # 10 examples in batches of 4 are 3 steps an epoch, over 2 epochs.
    metrics = result.metrics
    assert (metrics.examples, metrics.epochs, metrics.steps, metrics.train_loss) == (10, 2, 6, 0.25)
    assert [(report.epoch, report.loss) for report in seen] == [(2, 0.25)]


def test_an_app_receives_the_same_configuration_as_in_flower(bench: Bench, module: ModuleType) -> None:
    app, received = ClientApp(), []

    @app.train()
    def train(msg: Message, context: Context) -> Message:
        rounds = context.state.config_records.setdefault("seen", ConfigRecord({"rounds": 0}))
        rounds["rounds"] = int(rounds["rounds"]) + 1
        received.append((dict(msg.content["config"]), dict(context.run_config), dict(context.node_config)))
        received.append((list(msg.content["arrays"]), msg.metadata.message_type, int(rounds["rounds"])))
        return Message(
            RecordDict({"a": msg.content["arrays"], "m": MetricRecord({"num-examples": 1})}), reply_to=msg
        )

    net = network()
    work = work_of(
        module, app, run_config={"batch-size": 9}, node_config={"partition-id": 2, "num-partitions": 5}
    )
    for _ in range(2):
        work.train(job(bench, net))
    (config, run_config, node_config), (names, kind, seen), _, (_, _, again) = received
    assert (config["server-round"], config["lr"], config["local-epochs"]) == (1, 0.1, 2)
    assert run_config["batch-size"] == 9
    assert run_config["learning-rate"] == 0.1
    assert node_config == {"partition-id": 2, "num-partitions": 5}
    assert names == list(net.state_dict())
    assert (kind, seen, again) == ("train", 1, 2)


def without_bias(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    del state["0.bias"]
    return state


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda s: {**s, "0.weight": torch.zeros(3, 1)},
            "'0.weight': \\(3, 2\\) was sent, \\(3, 1\\) came back",
        ),
        (without_bias, "lacks '0.bias'"),
        (lambda s: {**s, "2.weight": torch.zeros(1)}, "no such name: '2.weight'"),
        (lambda s: {**s, "0.bias": torch.tensor([1.0, float("nan"), 0.0])}, "'0.bias' is not finite"),
        (lambda s: {**s, "0.bias": torch.zeros(3, dtype=torch.int64)}, "numbers of type int64"),
    ],
)
def test_arrays_that_do_not_match_the_model_are_refused(
    bench: Bench, module: ModuleType, change: Change, message: str
) -> None:
    with pytest.raises(FlowerError, match=message):
        work_of(module, app_that(change)).train(job(bench, network()))


def test_an_app_must_report_its_number_of_examples(bench: Bench, module: ModuleType) -> None:
    app = app_that(plus_one, **{"num-examples": float("nan")})
    with pytest.raises(FlowerError, match="num-examples"):
        work_of(module, app).train(job(bench, network()))


def test_an_exception_of_an_app_is_passed_on(bench: Bench, module: ModuleType) -> None:
    def fails(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        raise ValueError("no data in this partition")

    with pytest.raises(ValueError, match="no data in this partition"):
        work_of(module, app_that(fails)).train(job(bench, network()))


def test_a_cancelled_task_is_not_started(bench: Bench, module: ModuleType) -> None:
    with pytest.raises(TrainingStopped):
        work_of(module, app_that(plus_one)).train(job(bench, network(), should_stop=lambda: True))


def test_algorithms_that_change_local_training_are_refused(bench: Bench, module: ModuleType) -> None:
    work, task = work_of(module, app_that(plus_one)), bench.tasks(1, 1)["weak"]
    work.check(task)
    changed = task.training.model_copy(
        update={"objectives": (Component(name="scaffold"),), "local_epochs": 0, "augment": ("flip",)}
    )
    words = "'scaffold' or a round without epochs or augmented pictures"
    with pytest.raises(PeerError, match=words) as refused:
        work.check(task.model_copy(update={"training": changed}))
    assert refused.value.reason is Reason.INCOMPATIBLE
    mirrored = task.training.model_copy(update={"mirror": ("up-down",)})
    with pytest.raises(PeerError, match="augmented pictures"):
        work.check(task.model_copy(update={"training": mirrored}))


def test_the_device_evaluates_if_the_app_cannot(bench: Bench, module: ModuleType) -> None:
    place, task = bench.places["weak"], bench.tasks(1, 1)["weak"]
    app = app_that(plus_one)
    update = do_training(
        task, placed(place, work_of(module, app)), on_epoch=lambda _: None, should_stop=lambda: False
    )
    # Eight held-out digits: the device's own accuracy is in eighths.
    assert update.metrics.accuracy in [count / 8 for count in range(9)]

    @app.evaluate()
    def evaluate(msg: Message, context: Context) -> Message:
        figures = MetricRecord({"eval_loss": 1.5, "eval_acc": 0.875, "num-examples": 8})
        return Message(RecordDict({"metrics": figures}), reply_to=msg)

    update = do_training(
        task, placed(place, work_of(module, app)), on_epoch=lambda _: None, should_stop=lambda: False
    )
    assert (update.metrics.received_loss, update.metrics.accuracy) == (1.5, 0.875)


def test_an_app_that_builds_its_model_from_received_arrays_trains_a_pruned_tier(
    tmp_path: Path, module: ModuleType
) -> None:
    bench = Bench(tmp_path, "fedavg", "tiers.ratios=[0.5, 0.0]")
    task, place = bench.tasks(1, 1)["weak"], bench.places["weak"]
    assert task.spec.kept
    context = placed(place, work_of(module, app_that(plus_one)))
    update = do_training(task, context, on_epoch=lambda _: None, should_stop=lambda: False)
    groups = decode_groups(place.store.blob_path(update.blob.digest).read_bytes())
    for array in groups["model"].values():
        assert np.allclose(array, 1, atol=1e-5)


def test_an_app_with_a_client_fn_is_called_through_flowers_older_interface(
    bench: Bench, module: ModuleType
) -> None:
    class Client(NumPyClient):
        def fit(self, parameters: list[Any], config: dict[str, Any]) -> tuple[list[Any], int, dict[str, Any]]:
            return [array + config["lr"] for array in parameters], 12, {"train_loss": 0.5}

        def evaluate(
            self, parameters: list[Any], config: dict[str, Any]
        ) -> tuple[float, int, dict[str, Any]]:
            return 0.75, 4, {"accuracy": 0.5}

    net = torch.nn.Linear(2, 3)
    before = net.weight.detach().clone()
    work = work_of(module, ClientApp(client_fn=lambda context: Client().to_client()))
    assert work.train(job(bench, net)).metrics.examples == 12
    assert torch.allclose(net.weight, before + 0.1)
    found = work.evaluate(job(bench, net))
    assert (found.loss, found.accuracy, found.examples) == (0.75, 0.5, 4)


def test_an_app_that_cannot_be_loaded_is_refused_with_a_remedy(module: ModuleType, tmp_path: Path) -> None:
    module.number = 3  # type: ignore[attr-defined]
    module.idle = ClientApp()  # type: ignore[attr-defined]
    for name, message in [
        ("made_up_app", "expected package.module:app"),
        ("no_such_module:app", "importing 'no_such_module' failed"),
        ("made_up_app:app2", "is nothing, not a flwr.clientapp.ClientApp"),
        ("made_up_app:number", "is a int"),
        ("made_up_app:idle", "write @app.train"),
        (str(tmp_path), "names no clientapp"),
    ]:
        with pytest.raises(ConfigError, match=message):
            load_app(name)


SILENT = """
import sys, threading, urllib.request
from edge_client.training.flower.work import load_app
def refuse(*_, **__): raise AssertionError("a request was sent")
urllib.request.urlopen = refuse
load_app(sys.argv[1])
from flwr.common import EventType, event
print(event(EventType.PING).result(), [thread.name for thread in threading.enumerate() if not thread.daemon])
"""


def test_flower_sends_no_telemetry_even_if_called_explicitly() -> None:
    folder = Path(__file__).parents[4] / "deploy" / "examples" / "flower"
    command = [sys.executable, "-c", SILENT, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "disabled ['MainThread']"
