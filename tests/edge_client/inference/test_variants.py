"""Variants of a network: their outputs, and the choice among them."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edge_client.data.dataset import LabelledData
from edge_client.data.sources import load_source
from edge_client.inference.model_slots import ServedModel, read_export
from edge_client.inference.onnx_model import load_model
from edge_client.inference.quantization import quantize, trial
from edge_client.inference.quantization.quantize import CALIBRATION_BATCH, Batches
from edge_client.inference.quantization.selection import ALL, EXPORT_ALONE, Measured, VariantSettings, choose
from edge_client.inference.quantization.trial import keep_best, note_of
from schemas.tensors.chunks import digest_of
from schemas.values import Variant

FP32 = Measured("fp32", 4000, {"accuracy": 0.90}, 2.0)


def other(variant: Variant, accuracy: float | None, latency_ms: float, size: int = 1000) -> Measured:
    return Measured(variant, size, {} if accuracy is None else {"accuracy": accuracy}, latency_ms)


# --- the choice ---
def test_the_fastest_variant_with_a_loss_below_the_bound_is_kept() -> None:
    # 0.90 - 0.895 is half a point, 0.90 - 0.88 two points.
    choice = choose(FP32, [other("fp16", 0.895, 1.5), other("int8", 0.88, 0.5)], max_loss=1.0)
    assert choice.kept.variant == "fp16"
    assert choice.why == (
        "fastest at 1.500 ms; fp16 1.33 x as fast as fp32, 0.50 points lost; "
        "int8 4.00 x as fast as fp32, 2.00 points lost, at most 1 allowed"
    )


def test_a_loss_as_large_as_the_bound_is_too_large() -> None:
    # Exactly one point, however 0.90 - 0.89 is rounded.
    assert choose(FP32, [other("int8", 0.89, 0.5)], max_loss=1.0).kept is FP32
    assert choose(FP32, [other("int8", 0.8901, 0.5)], max_loss=1.0).kept.variant == "int8"


def test_a_bound_of_zero_allows_only_better_variants() -> None:
    assert choose(FP32, [other("int8", 0.90, 0.5)], max_loss=0.0).kept is FP32
    assert choose(FP32, [other("int8", 0.91, 0.5)], max_loss=0.0).kept.variant == "int8"


def test_a_slower_variant_is_not_kept() -> None:
    assert choose(FP32, [other("int8", 0.90, 3.0)]).kept is FP32


def test_the_smaller_of_equally_fast_variants_is_kept() -> None:
    assert choose(FP32, [other("fp16", 0.90, 2.0), other("int8", 0.90, 2.0, 900)]).kept.variant == "int8"


def test_without_an_accuracy_the_export_is_kept() -> None:
    blind = replace(FP32, metrics={})
    choice = choose(blind, [other("int8", None, 0.5)])
    assert choice.kept is blind
    assert "no held-out examples" in choice.why


@pytest.mark.parametrize(
    ("variants", "others"),
    [
        (EXPORT_ALONE, ()),
        (ALL, ("fp16", "int8")),
        (VariantSettings(("int8",)), ("int8",)),
        (VariantSettings(()), ()),
    ],
)
def test_the_export_itself_is_not_listed_among_the_variants_to_make(
    variants: VariantSettings, others: tuple[str, ...]
) -> None:
    assert variants.others == others


# --- outputs ---
@pytest.fixture(scope="module")
def train() -> LabelledData:
    return load_source("digits", split="train")


@pytest.fixture(scope="module")
def held_out() -> LabelledData:
    return load_source("digits", split="test")


@pytest.fixture(scope="module")
def exported(train: LabelledData) -> bytes:
    """The export of a network with 64 random features and a fitted last layer."""
    rng = np.random.default_rng(0)
    first = (rng.standard_normal((64, 64)) / 8).astype(np.float32)
    features = np.maximum(train.inputs().reshape(len(train), -1) @ first.T, 0)
    last = np.linalg.lstsq(features, np.eye(10)[train.labels], rcond=1e-3)[0].T.astype(np.float32)
    layers = [
        helper.make_node("Flatten", ["input"], ["flat"]),
        helper.make_node("Gemm", ["flat", "first"], ["hidden"], transB=1),
        helper.make_node("Relu", ["hidden"], ["features"]),
        helper.make_node("Gemm", ["features", "last"], ["logits"], transB=1),
    ]
    graph = helper.make_graph(
        layers,
        "fitted",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])],
        [numpy_helper.from_array(first, "first"), numpy_helper.from_array(last, "last")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    metadata = {
        "input.shape": "[1, 8, 8]",
        "preprocessing": train.preprocessing.model_dump_json(exclude={"class_names"}),
        "class_names": json.dumps(list(train.class_names)),
        "fl.tier": "1",
    }
    helper.set_model_props(model, metadata)
    data: bytes = model.SerializeToString()
    return data


@pytest.fixture
def model_path(exported: bytes, tmp_path: Path) -> Path:
    (tmp_path / "model.onnx").write_bytes(exported)
    return tmp_path / "model.onnx"


@pytest.mark.parametrize(("variant", "types"), [("fp16", {10}), ("int8", {3, 2})])
def test_a_variant_is_small_names_its_parent_and_is_about_as_accurate(
    model_path: Path,
    exported: bytes,
    train: LabelledData,
    held_out: LabelledData,
    variant: Variant,
    types: set[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The variant counts as faster on any machine.
    monkeypatch.setattr(trial, "latencies_ms", lambda models, seconds: [2.0, 1.0])
    tried = keep_best(model_path, VariantSettings((variant,), 2.0), calibration=train, held_out=held_out)
    data = model_path.read_bytes()
    assert tried.choice.kept.variant == variant
    assert (tried.sha256, tried.parent) == (digest_of(data), digest_of(exported))
    assert read_export(model_path) == exported
    assert tried.choice.kept.bytes == len(data) < 0.55 * len(exported)
    served, before = load_model(model_path), load_model(model_path, data=exported)
    assert served.provenance == {"tier": "1", "variant": variant, "parent": digest_of(exported)}
    assert served.preprocessing == before.preprocessing
    assert {value.type for value in (*served.session.get_inputs(), *served.session.get_outputs())} == {
        "tensor(float)"
    }
    model = onnx.load_from_string(data)
    onnx.checker.check_model(model, full_check=True)
    assert types <= {tensor.data_type for tensor in model.graph.initializer}
    assert tried.exported.accuracy == before.accuracy(held_out.images, held_out.labels)
    assert tried.choice.kept.accuracy == served.accuracy(held_out.images, held_out.labels)
    assert tried.choice.kept.accuracy > tried.exported.accuracy - 0.02 > 0.8
    # The outputs still differ slightly.
    assert np.abs(served.predict(held_out.images) - before.predict(held_out.images)).max() > 0


def test_weights_have_a_scale_per_channel(
    model_path: Path, train: LabelledData, held_out: LabelledData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "latencies_ms", lambda models, seconds: [2.0, 1.0])
    keep_best(model_path, VariantSettings(("int8",), 100.0), calibration=train, held_out=held_out)
    model = onnx.load(str(model_path))
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    layers = [node for node in model.graph.node if node.op_type == "DequantizeLinear"]
    weights = [(node, tensors[node.input[0]]) for node in layers if node.input[0] in tensors]
    matrices = [
        (tuple(tensors[node.input[1]].dims), tuple(w.dims)) for node, w in weights if len(w.dims) == 2
    ]
    assert sorted(matrices) == [((10,), (10, 64)), ((64,), (64, 64))]


def test_a_kept_export_is_not_changed(
    model_path: Path,
    exported: bytes,
    train: LabelledData,
    held_out: LabelledData,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(trial, "latencies_ms", lambda models, seconds: [1.0, 2.0, 2.0])
    with caplog.at_level(logging.INFO):
        tried = keep_best(model_path, ALL, calibration=train, held_out=held_out)
    assert model_path.read_bytes() == exported
    assert (tried.choice.kept.variant, tried.parent) == ("fp32", None)
    # The log contains the reason and nothing from the quantiser.
    assert [record.getMessage() for record in caplog.records] == [f"fp32 is kept: {tried.choice.why}"]


def test_without_examples_to_calibrate_on_int8_is_not_tried(
    model_path: Path, exported: bytes, train: LabelledData, held_out: LabelledData
) -> None:
    tried = keep_best(model_path, VariantSettings(("int8",)), calibration=train.subset([]), held_out=held_out)
    assert tried.choice.kept.variant == "fp32"
    assert model_path.read_bytes() == exported


def test_a_quantiser_failure_skips_only_that_variant(
    model_path: Path,
    train: LabelledData,
    held_out: LabelledData,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def unknown(*_: object) -> bytes:
        raise RuntimeError("an operator that nobody knows")

    monkeypatch.setattr(quantize, "quantise_model", unknown)
    tried = keep_best(model_path, ALL, calibration=train, held_out=held_out, seconds=0.02)
    assert tried.choice.kept.variant in ("fp32", "fp16")
    assert "int8 is not tried: RuntimeError: an operator that nobody knows" in caplog.text


def test_a_slot_note_contains_the_measurements(
    model_path: Path, train: LabelledData, held_out: LabelledData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "latencies_ms", lambda models, seconds: [2.0, 1.0])
    tried = keep_best(model_path, VariantSettings(("int8",), 100.0), calibration=train, held_out=held_out)
    note = note_of(tried, version="run-1 round 3", data=held_out)
    assert ServedModel.model_validate_json(note.model_dump_json()) == note
    assert (note.variant, note.examples, note.latency_ms) == ("int8", len(held_out), 1.0)
    assert note.class_names == tuple("0123456789")


def test_calibration_goes_batch_by_batch_over_every_example() -> None:
    batches = Batches("x", np.arange(CALIBRATION_BATCH + 3, dtype=np.float32)[:, None])
    sizes = []
    while (batch := batches.get_next()) is not None:
        sizes.append(len(batch["x"]))
    assert sizes == [CALIBRATION_BATCH, 3]
