"""Deliveries on devices with torch and without it."""

import copy
import logging
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from edge_client.agent import delivery_export
from edge_client.agent.delivery_export import choose_exporter, export_with_graph, export_with_torch
from edge_client.agent.settings import TaskContext
from edge_client.agent.task_runner import do_delivery
from edge_client.data.local import LocalData
from edge_client.data.sources import load_source
from edge_client.inference.export.metadata import ExportRefused
from edge_client.inference.export.onnx import find_graph
from edge_client.inference.installed_model import served_model_path
from edge_client.inference.onnx_model import load_model
from edge_client.inference.quantization import trial
from edge_client.inference.quantization.selection import ALL, VariantSettings
from edge_client.models.build import build_model
from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.pruning.index_sets import extract
from edge_client.pruning.surgery import arrays_of
from edge_client.storage.blob_store import BlobStore
from edge_client.training.choice import make_trainer
from edge_client.training.evaluation import evaluate
from edge_client.training.loop import train
from schemas.errors import PeerError, Reason
from schemas.messages import DeliverTask, Delivery
from schemas.messages.rollout import TrialTerms
from schemas.strategy import TrainingPlan
from schemas.submodel import SubModelSpec
from schemas.tensors.chunks import encode_json
from schemas.values import ModelSpec
from tests.edge_client.data.tasks.examples import examples
from tests.groups import encode_groups
from tests.without_packages import run_without

SPEC = ModelSpec(name="cnn-batch", input_shape=(1, 8, 8), num_classes=10)
HELD_OUT = 40


@pytest.fixture(scope="module")
def graph() -> bytes:
    return find_graph(build_model(SPEC, seed=1).eval(), SPEC.input_shape)


def place(folder: Path) -> TaskContext:
    digits = load_source("digits")
    data = LocalData(digits.subset(range(60)), digits.subset(range(100, 100 + HELD_OUT)))
    return TaskContext("pi", BlobStore(folder / "blobs"), data, folder / "models")


def deliver(
    context: TaskContext, graph: bytes | None, *, seed: int = 1, change: object = None, **more: object
) -> DeliverTask:
    """A delivery of a narrower sub-model, whose blobs are in the context's store."""
    module = build_model(SPEC, seed=seed)
    channels = trace_channels(module, SPEC.input_shape)
    spec = SubModelSpec(kept={name: group.channels // 2 for name, group in channels.groups.items()})
    arrays = dict(extract(arrays_of(module), spec, channels))
    if change is not None:
        change(arrays)  # type: ignore[operator]
    blobs = {
        "state": context.store.put_blob(encode_groups({"model": arrays})),
        "channel-map": context.store.put_blob(encode_json(channels)),
    }
    if graph is not None:
        blobs["graph"] = context.store.put_blob(graph)
    return DeliverTask(
        federation="home",
        run="run-1",
        round=seed,
        attempt=1,
        tier=1,
        ratio=0.5,
        model=SPEC,
        spec=spec,
        preprocessing=context.data.train.preprocessing,
        provenance={"run_id": "run-1", "fl.tier": "1"},
        blobs=blobs,
        **more,
    )


def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery_export, "is_installed", lambda package: package not in ("torch", "onnx"))


def test_the_exporter_follows_the_trainer_and_the_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = place(tmp_path)
    assert choose_exporter(context) is export_with_torch
    assert choose_exporter(replace(context, trainer=make_trainer("torch"))) is export_with_torch
    chosen = type("Chosen", (), {"name": "onnx"})()
    assert choose_exporter(replace(context, trainer=chosen)) is export_with_graph
    for missing in ("torch", "onnx"):
        monkeypatch.setattr(delivery_export, "is_installed", missing.__ne__)
        assert choose_exporter(context) is export_with_graph


def test_both_exporters_write_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, graph: bytes
) -> None:
    one, two = place(tmp_path / "torch"), place(tmp_path / "graph")
    with_torch = do_delivery(deliver(one, graph), one).metrics
    without_torch(monkeypatch)
    filled = do_delivery(deliver(two, graph), two).metrics
    assert served_model_path(one.models).read_bytes() == served_model_path(two.models).read_bytes()
    assert with_torch.torch_accuracy == filled.onnx_accuracy == with_torch.onnx_accuracy
    assert with_torch.max_difference is not None
    assert (filled.torch_accuracy, filled.max_difference) == (None, None)
    for measured in ("parameters", "macs", "onnx_bytes", "onnx_sha256", "examples", "onnx_accuracy"):
        assert getattr(filled, measured) == getattr(with_torch, measured), measured
    assert 0 < filled.parameters < filled.macs


def _lose_a_weight(arrays: dict[str, np.ndarray]) -> None:
    arrays.pop(next(iter(arrays)))


def _diverge(arrays: dict[str, np.ndarray]) -> None:
    for array in arrays.values():
        array[...] = np.nan


def _fewer_classes(arrays: dict[str, np.ndarray]) -> None:
    for name, array in arrays.items():
        if len(array) == SPEC.num_classes:
            arrays[name] = array[:3]


def _widen(arrays: dict[str, np.ndarray]) -> None:
    name = next(iter(arrays))
    arrays[name] = np.concatenate([arrays[name], arrays[name]])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_lose_a_weight, "which is not a weight"),
        (_diverge, "no numbers"),
        (_widen, "onnxruntime cannot run"),
        (_fewer_classes, r"outputs of \[3\], not 10 classes"),
    ],
)
def test_arrays_that_do_not_fit_leave_the_served_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, graph: bytes, change: object, why: str
) -> None:
    without_torch(monkeypatch)
    context = place(tmp_path)
    do_delivery(deliver(context, graph), context)
    before = served_model_path(context.models).read_bytes()
    with pytest.raises(ExportRefused, match=why):
        do_delivery(deliver(context, graph, seed=2, change=change), context)
    assert served_model_path(context.models).read_bytes() == before


def test_bad_graphs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, graph: bytes) -> None:
    without_torch(monkeypatch)
    context = place(tmp_path)
    for bad in (b"\0", b"\xff" * 50, graph[: len(graph) // 2], graph + b"\0" * 2**21):
        with pytest.raises(ExportRefused):
            do_delivery(deliver(context, bad), context)


def test_a_delivery_without_a_graph_is_declined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_torch(monkeypatch)
    context = place(tmp_path)
    with pytest.raises(PeerError, match="the task has no graph") as caught:
        do_delivery(deliver(context, None), context)
    assert caught.value.reason is Reason.INCOMPATIBLE


DELIVER = """
import logging, sys
from dataclasses import replace
from pathlib import Path
from edge_client.agent.settings import TaskContext
from edge_client.agent.task_runner import do_delivery
from edge_client.data.local import LocalData
from edge_client.data.sources import load_source
from edge_client.inference.quantization.selection import ALL
from edge_client.storage.blob_store import BlobStore
from schemas.messages import DeliverTask

logging.basicConfig(level=logging.INFO)
folder, (*tasks,) = Path(sys.argv[1]), map(Path, sys.argv[2:])
digits = load_source("digits")
data = LocalData(digits.subset(range(60)), digits.subset(range(100, 140)))
context = TaskContext("pi", BlobStore(folder / "blobs"), data, folder / "models", variants=ALL)
for task in tasks:
    print(do_delivery(DeliverTask.model_validate_json(task.read_bytes()), context).model_dump_json())
assert not {"torch", "torchvision", "onnx"} & sys.modules.keys()
"""


def test_two_deliveries_without_torch_torchvision_and_onnx(tmp_path: Path, graph: bytes) -> None:
    context, terms = place(tmp_path / "device"), TrialTerms()
    tasks = []
    for seed in (1, 2):
        task = deliver(context, graph, seed=seed, trial=terms)
        tasks.append(tmp_path / f"task-{seed}.json")
        tasks[-1].write_text(task.model_dump_json())
    blocked = ("torch", "torchvision", "onnx", "onnxscript")
    printed, logged = run_without(blocked, tmp_path / "site", DELIVER, tmp_path / "device", *tasks)
    first, second = map(Delivery.model_validate_json, printed.splitlines())
    assert first.metrics.verdict is not None
    assert first.metrics.verdict.served
    assert second.metrics.verdict is not None
    # The second model was compared with the first one, in a process of its own.
    assert second.metrics.verdict.earlier == "run-1 round 1"
    assert second.metrics.verdict.earlier_accuracy == first.metrics.onnx_accuracy
    assert first.metrics.variant == "fp32"
    assert logged.count("fp16 and int8 not tried: the onnx package is not installed") == 2

    # torch exports the same bytes, which are in use unless the second model was better.
    with_torch = place(tmp_path / "torch")
    expected = do_delivery(deliver(with_torch, graph, seed=1), with_torch)
    assert first.metrics.onnx_sha256 == expected.metrics.onnx_sha256
    ours, theirs = (
        load_model(served_model_path(context.models)),
        load_model(served_model_path(with_torch.models)),
    )
    if second.metrics.verdict.served:
        theirs = load_model(served_model_path(_delivered(tmp_path / "again", graph).models))
    images = with_torch.data.held_out.images
    np.testing.assert_allclose(ours.logits(images), theirs.logits(images), atol=1e-6)
    assert ours.metadata == theirs.metadata


def _delivered(folder: Path, graph: bytes) -> TaskContext:
    context = place(folder)
    do_delivery(deliver(context, graph, seed=2), context)
    return context


VARIANTS = """
import sys
from pathlib import Path
from edge_client.data.sources import load_source
from edge_client.inference.quantization.selection import ALL
from edge_client.inference.quantization.trial import keep_best
digits = load_source("digits")
path = Path(sys.argv[1])
kept = keep_best(path, ALL, calibration=digits.subset(range(60)), held_out=digits.subset(range(100, 140)))
print(kept.choice.why)
assert "onnx" in sys.modules and "torch" not in sys.modules
"""


def test_variants_are_made_with_onnx_and_without_torch(tmp_path: Path, graph: bytes) -> None:
    context = place(tmp_path / "device")
    do_delivery(deliver(context, graph), context)
    (tmp_path / "model.onnx").write_bytes(served_model_path(context.models).read_bytes())
    printed, _ = run_without(("torch", "torchvision"), tmp_path / "site", VARIANTS, tmp_path / "model.onnx")
    assert {"fp16", "int8"} <= set(printed.replace(",", " ").split())


def test_only_fp32_is_kept_without_the_onnx_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, graph: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(trial, "is_installed", lambda package: package != "onnx")
    context = replace(place(tmp_path), variants=VariantSettings(("fp32", "int8")))
    with caplog.at_level(logging.WARNING):
        metrics = do_delivery(deliver(context, graph), context).metrics
    assert metrics.variant == "fp32"
    assert caplog.text.count("int8 not tried: the onnx package is not installed") == 1


DETECTOR = ModelSpec(
    name="detector:tests.edge_server.simulation.test_detection:patches",
    input_shape=(1, 64, 64),
    num_classes=2,
    task="detection",
)


def deliver_detector(context: TaskContext, graph: bytes, module: nn.Module, round: int) -> Delivery:
    """The delivery of a whole detector with this module's weights, compared with the one in use."""
    channels = trace_channels(module, DETECTOR.input_shape)
    arrays = dict(extract(arrays_of(module), SubModelSpec(), channels))
    blobs = {
        "state": context.store.put_blob(encode_groups({"model": arrays})),
        "channel-map": context.store.put_blob(encode_json(channels)),
        "graph": context.store.put_blob(graph),
    }
    stated = {"model": DETECTOR, "spec": SubModelSpec(), "blobs": blobs, "round": round, "ratio": 0.0}
    task = deliver(context, None, trial=TrialTerms()).model_copy(update=stated)
    return do_delivery(task, context)


def test_the_variant_of_a_detector_is_chosen_by_what_it_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    data = LocalData(examples("detection", 64), examples("detection", 40, seed=1))
    code = frozenset({DETECTOR.name})
    context = TaskContext(
        "pi", BlobStore(tmp_path / "blobs"), data, tmp_path / "models", variants=ALL, model_code=code
    )
    module = build_model(DETECTOR, seed=1)
    graph, blind = find_graph(module.eval(), DETECTOR.input_shape), copy.deepcopy(module)
    plan = TrainingPlan(optimizer="adam", learning_rate=0.01, batch_size=8, local_epochs=6, seed=1)
    train(module, data.train, plan)
    # 8 bits count as the fastest on any machine.
    monkeypatch.setattr(trial, "latencies_ms", lambda models, seconds: [3.0, 2.0, 1.0])
    with caplog.at_level(logging.INFO):
        delivered = deliver_detector(context, graph, module.eval(), 1).metrics
    served = load_model(served_model_path(context.models))
    found = served.measure_examples(data.held_out.images, data.held_out.labels)
    assert (delivered.variant, delivered.metrics) == ("int8", found)
    exported = evaluate(module, data.held_out).metrics["map50"]
    assert found["map50"] > exported - 0.01 > 0.3
    assert re.search(
        r"int8 is kept: .*fp16 1.50 x as fast as fp32, (no map50|0\.\d\d points) lost", caplog.text
    )
    worse = deliver_detector(context, graph, blind, 2).metrics.verdict
    assert worse is not None
    assert not worse.served
    assert re.match(r"accuracy: map50 \d+\.\d\d% of 40 examples, map50 \d+\.\d\d% before", worse.why)
