"""The comparison of two models in a separate process: its results, and crashes of the process."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from edge_client.agent.rollout.comparison_process import (
    compare_models,
    in_turns,
    local_examples,
    write_best_variant,
)
from edge_client.agent.rollout.trial import ComparisonRunner, ModelPair, judge_comparison, read_comparison
from edge_client.data.dataset import make_labelled_data
from edge_client.data.local import LocalData
from edge_client.data.sources import load_source
from edge_client.inference.export.onnx import export_onnx
from schemas.messages.rollout import Cause, TrialTerms
from schemas.tensors.chunks import digest_of
from schemas.values import Preprocessing, Resizing
from tests.edge_server.releases.rollout.sample_versions import classifier, fitted


@pytest.fixture(scope="module")
def data() -> LocalData:
    digits = load_source("digits")
    return LocalData(digits.subset(range(600)), digits.subset(range(600, 700)))


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return classifier(tmp_path_factory.mktemp("good") / "good.onnx", fitted())


def found(candidate: Path, running: Path | None, data: LocalData) -> dict[str, Any]:
    """The result of the comparison process, computed in this process."""
    from edge_client.inference.onnx_model import load_model

    shown = local_examples(data, 60)
    model = None if running is None else load_model(running, threads=1)
    return compare_models(candidate, model, shown)


def test_a_separate_process_compares_two_models_and_reports_the_result(data, good, tmp_path) -> None:
    bad = classifier(tmp_path / "bad.onnx", np.roll(fitted(), 1, axis=1))
    measuring = ComparisonRunner(lambda: data, tmp_path / "examples.npz")
    comparison = measuring.compare(ModelPair(good, bad), 60)
    assert comparison.running.examples == comparison.candidate.examples == 60
    assert comparison.running.accuracy > 0.7
    # `lost`: only the old model is right. `won`: only the new model is right.
    gap = comparison.running.accuracy - comparison.candidate.accuracy
    assert comparison.lost - comparison.won == round(60 * gap)
    objection = judge_comparison(comparison, TrialTerms())
    assert objection is not None
    assert objection[0] is Cause.ACCURACY
    measuring.forget()
    assert not (tmp_path / "examples.npz").exists()


def test_a_model_compared_with_itself_loses_nothing(data, good) -> None:
    same = found(good, good, data)
    assert (same["lost"], same["won"]) == (0, 0)
    assert same["running"]["accuracy"] == same["candidate"]["accuracy"]


def named(data: LocalData) -> LocalData:
    """The same digits on a device with class names in another order."""
    order = np.roll(np.arange(10), 3)
    names = tuple(str(number) for number in order)
    places = np.argsort(order)
    parts = (
        make_labelled_data(part.images, places[part.labels], class_names=names)
        for part in (data.train, data.held_out)
    )
    return LocalData(*parts)


def with_names(path: Path, source: Path, names: list[str]) -> Path:
    return with_metadata(path, source, class_names=json.dumps(names))


def with_metadata(path: Path, source: Path, **changed: str) -> Path:
    model = onnx.load(source)
    metadata = {prop.key: prop.value for prop in model.metadata_props} | changed
    onnx.helper.set_model_props(model, metadata)
    onnx.save(model, str(path))
    return path


def test_a_device_matches_classes_by_name(data, good, tmp_path) -> None:
    model = with_names(tmp_path / "named.onnx", good, list("0123456789"))
    by_number, by_name = found(model, model, data), found(model, model, named(data))
    assert by_name["candidate"]["accuracy"] == by_number["candidate"]["accuracy"] > 0.7
    assert by_name["running"]["accuracy"] == by_number["running"]["accuracy"]


def test_class_names_are_passed_to_the_comparison_process(data, good, tmp_path) -> None:
    model = with_names(tmp_path / "named.onnx", good, list("0123456789"))
    comparison = ComparisonRunner(lambda: named(data), tmp_path / "examples.npz").compare(
        ModelPair(model, model), 60
    )
    assert comparison.candidate.accuracy > 0.7


def test_images_are_resized_to_the_models_input_size(data, good, tmp_path) -> None:
    large = LocalData(
        *(
            replace(part, images=np.kron(part.images, np.ones((1, 1, 4, 4), np.uint8)), resizable=True)
            for part in (data.train, data.held_out)
        )
    )
    assert large.held_out.input_shape == (1, 32, 32)
    comparison = ComparisonRunner(lambda: large, tmp_path / "examples.npz").compare(ModelPair(good, good), 60)
    assert comparison.objection is None
    # Resizing blurs the images; chance level is a tenth.
    assert comparison.running.accuracy == comparison.candidate.accuracy > 0.5


def says_box(path: Path, corners: tuple[float, ...]) -> Path:
    """A detector of 64x64 pixels that says the same box of its first class of two for every picture."""
    shape, cells = (1, 64, 64), 336
    module = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1, 7 * cells))
    said = torch.full((7, cells), -20.0)
    said[[0, 6], 0], said[2:6, 0] = 20.0, torch.tensor(corners)
    nn.init.zeros_(module[2].weight)
    module[2].bias.data = said.flatten()
    about = Preprocessing(class_names=("cat", "dog"), resizing=Resizing(letterbox=True))
    export_onnx(module.eval(), path, input_shape=shape, preprocessing=about, provenance={}, task="detection")
    return path


def test_boxes_are_compared_in_the_models_pixels(tmp_path) -> None:
    """Pictures of other sizes than the model's, of which one is smaller than its canvas."""
    labels = np.array([[[0, 16, 16, 48, 48]], [[0, 8, 8, 24, 24]]], np.float32)
    pictures = make_labelled_data(np.zeros((2, 1, 128, 64), np.uint8), labels, class_names=("cat",))
    shown = LocalData(*[replace(pictures, sizes=np.array([[128, 64], [64, 64]]))] * 2)
    right, wrong = (says_box(tmp_path / f"{n}.onnx", (8, 8, n, n)) for n in (24, 12))
    comparison = ComparisonRunner(lambda: shown, tmp_path / "examples.npz").compare(
        ModelPair(wrong, right), 60
    )
    assert comparison.candidate.metrics["map50"] == pytest.approx(1)
    assert comparison.running.metrics["map50"] == 0
    assert (comparison.lost, comparison.won) == (0, 2)


def test_a_detector_whose_boxes_are_shifted_is_objected_to_by_map50_and_one_as_good_is_not(tmp_path) -> None:
    labels = np.tile(np.array([[0, 8, 8, 24, 24]], np.float32), (6, 1, 1))
    pictures = make_labelled_data(np.zeros((6, 1, 64, 64), np.uint8), labels, class_names=("cat", "dog"))
    shown, terms = LocalData(pictures, pictures), TrialTerms(latency_ratio=100)
    good, like, shifted = (says_box(tmp_path / f"{n}.onnx", (n, n, n + 16, n + 16)) for n in (8, 9, 16))
    refused, kept = (
        judge_comparison(read_comparison(json.dumps(found(other, good, shown))), terms)
        for other in (shifted, like)
    )
    assert refused == (Cause.ACCURACY, "map50 0.00% of 6 examples, map50 100.00% before")
    assert kept is None


def test_a_detector_of_another_grid_is_incompatible_and_in_use_it_is_compared_with_nothing(tmp_path) -> None:
    """Cells of 8 and 16 pixels are 80; those of 4, 8 and 16 are 336."""
    labels = np.array([[[0, 8, 8, 24, 24]]], np.float32)
    shown = make_labelled_data(np.zeros((1, 1, 64, 64), np.uint8), labels, class_names=("cat", "dog"))
    data, measuring = LocalData(shown, shown), tmp_path / "examples.npz"
    usual = says_box(tmp_path / "usual.onnx", (8, 8, 24, 24))
    module, drawn = nn.Sequential(nn.Flatten(), nn.Linear(64 * 64, 7 * 80)), tmp_path / "drawn.onnx"
    about = Preprocessing(class_names=("cat", "dog"))
    export_onnx(module.eval(), drawn, input_shape=(1, 64, 64), preprocessing=about, provenance={})
    other = with_metadata(tmp_path / "80.onnx", drawn, task="detection")
    refused = ComparisonRunner(lambda: data, measuring).compare(ModelPair(usual, other), 60)
    assert refused.objection == (
        Cause.INCOMPATIBLE,
        "80.onnx gives 560 numbers per example, and the task 'detection' has 2352 for 2 names and images of "
        "1x64x64",
    )
    replaced = ComparisonRunner(lambda: data, measuring).compare(ModelPair(other, usual), 60)
    assert (replaced.running, replaced.candidate.metrics["map50"]) == (None, pytest.approx(1))


@pytest.mark.parametrize(
    ("task", "labels", "outputs"),
    [
        ("classification", np.array([0, 1]), 1),
        ("multi-label", np.eye(2, dtype=np.float32), 3),
        ("regression", np.eye(2, dtype=np.float32), 3),
        ("anomaly", np.array([0, 1]), 3),
    ],
)
def test_a_file_with_another_number_of_outputs_than_its_task_has_is_incompatible(
    task: str, labels: np.ndarray, outputs: int, tmp_path
) -> None:
    names = ("a", "b")
    shown = make_labelled_data(np.zeros((2, 1, 8, 8), np.uint8), labels, class_names=names)
    path, module = tmp_path / "other.onnx", nn.Sequential(nn.Flatten(), nn.Linear(64, outputs))
    about = Preprocessing(class_names=names)
    export_onnx(module.eval(), path, input_shape=(1, 8, 8), preprocessing=about, provenance={}, task=task)
    cause, why = compare_models(path, None, shown)["objection"]
    assert cause == Cause.INCOMPATIBLE
    assert why.startswith(f"other.onnx gives {outputs} number")


def test_a_model_without_a_class_of_the_device_is_refused_with_both_lists(data, good, tmp_path) -> None:
    model = with_names(tmp_path / "other.onnx", good, ["0", "1", "2"])
    cause, why = found(model, good, named(data))["objection"]
    assert cause == Cause.INCOMPATIBLE
    assert "the federation knows '0', '1', '2' (3), this data has '7', '8', '9'" in why


def test_a_model_in_use_that_lacks_a_class_counts_as_wrong_for_it(data, good, tmp_path) -> None:
    small = with_names(tmp_path / "small.onnx", good, list("01234"))
    whole = with_names(tmp_path / "whole.onnx", good, list("0123456789"))
    measured = found(whole, small, named(data))
    running, candidate = (measured[model]["accuracy"] for model in ("running", "candidate"))
    assert running < candidate - 0.3


@pytest.mark.parametrize(
    ("spoil", "cause"),
    [
        (lambda path: path.write_bytes(b"no model"), Cause.DAMAGED),
        (lambda path: classifier(path, np.full((65, 10), np.nan)), Cause.DAMAGED),
    ],
)
def test_an_unusable_model_is_reported_as_damaged(spoil, cause, data, good, tmp_path) -> None:
    path = tmp_path / "candidate.onnx"
    spoil(path)
    assert found(path, good, data)["objection"][0] == cause


def test_the_fastest_accurate_variant_is_created_and_named(data, good, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(
        "edge_client.inference.quantization.trial.latencies_ms", lambda models, seconds: [2.0, 1.0]
    )
    made, shown = tmp_path / "made.onnx", local_examples(data, 60)
    request = {"made": str(made), "variants": ["fp32", "int8"], "max_loss": 100.0}
    variant, digest = write_best_variant(good, request, shown, data.train.images[:50])
    assert (variant, digest) == ("int8", digest_of(made.read_bytes()))
    # The export itself is used if it is as fast.
    monkeypatch.setattr(
        "edge_client.inference.quantization.trial.latencies_ms", lambda models, seconds: [1.0, 2.0]
    )
    assert write_best_variant(good, request, shown, data.train.images[:50]) is None
    (tmp_path / "no.onnx").write_bytes(b"no model")
    assert write_best_variant(tmp_path / "no.onnx", request, shown, shown.images) is None


def test_a_model_for_another_image_shape_is_reported_as_incompatible(good) -> None:
    shown = make_labelled_data(np.zeros((4, 3, 8, 8), np.uint8), np.zeros(4, np.int64))
    assert compare_models(good, None, shown)["objection"][0] == Cause.INCOMPATIBLE


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import os; os.abort()", "signal 6"),
        ("raise MemoryError('no memory')", "exit code 1: MemoryError: no memory"),
    ],
)
def test_a_model_that_crashes_the_comparison_process_does_not_crash_the_device(
    code: str, reason: str, data, good, tmp_path, monkeypatch
) -> None:
    import subprocess
    import sys

    start = subprocess.Popen
    monkeypatch.setattr(
        "edge_client.system.child_process.subprocess.Popen",
        lambda _, **more: start([sys.executable, "-c", code], **more),
    )
    comparison = ComparisonRunner(lambda: data, tmp_path / "examples.npz").compare(ModelPair(good, good), 10)
    assert comparison.objection == (Cause.CRASHES, f"running it ended with {reason}")


@pytest.mark.parametrize("text", ["", "nothing", "[]", '{"running": 1}', '{"objection": ["bad luck", ""]}'])
def test_an_invalid_answer_counts_as_a_crash(text: str) -> None:
    assert read_comparison(text).objection[0] is Cause.CRASHES


def test_without_examples_the_model_is_reported_as_incompatible(data, good, tmp_path) -> None:
    empty = LocalData(data.train.subset([]), data.train.subset([]))
    comparison = ComparisonRunner(lambda: empty, tmp_path / "examples.npz").compare(ModelPair(good, good), 10)
    assert comparison.objection[0] is Cause.INCOMPATIBLE


def test_held_out_examples_are_used_if_there_are_any(data) -> None:
    assert len(local_examples(data, 1000)) == 100
    assert len(local_examples(LocalData(data.train, data.train.subset([])), 1000)) == 600
    assert len(local_examples(data, 0)) == 1


def test_models_are_timed_alternately() -> None:
    order: list[str] = []

    class Fake:
        def __init__(self, name: str) -> None:
            self.name = name

        def logits(self, images: Any) -> None:
            order.append(self.name)

    images = np.zeros((2, 1, 8, 8), np.uint8)
    assert len(in_turns([Fake("old"), Fake("new")], [images, images], seconds=0.0)) == 2  # type: ignore[list-item]
    assert order == ["old", "new"] * 10
