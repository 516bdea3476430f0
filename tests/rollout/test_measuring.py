"""Two models side by side in a process of its own: what it finds, and what takes it down."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_client.data.sources import load_source
from edge_client.rollout.examples import local_examples
from edge_client.rollout.judging import judge_comparison
from edge_client.rollout.measure import _better, _found, in_turns
from edge_client.rollout.measuring import Measuring, Pair, read_comparison
from edge_client.rollout.trial_events import Comparison
from edge_client.workplace import LocalData
from schemas.chunks import digest_of
from schemas.rollout import Cause, Terms
from tests.rollout.shelf import classifier, fitted


@pytest.fixture(scope="module")
def data() -> LocalData:
    digits = load_source("digits")
    return LocalData(digits.subset(range(600)), digits.subset(range(600, 700)))


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return classifier(tmp_path_factory.mktemp("good") / "good.onnx", fitted())


def found(candidate: Path, running: Path | None, data: LocalData) -> dict[str, Any]:
    """What the process would find, in this one."""
    from edge_client.inference import load_model

    shown = local_examples(data, 60)
    model = None if running is None else load_model(running, threads=1)
    return _found(candidate, model, shown.images, shown.labels)


def test_a_process_of_its_own_compares_two_models_and_says_what_it_found(data, good, tmp_path) -> None:
    bad = classifier(tmp_path / "bad.onnx", np.roll(fitted(), 1, axis=1))
    measuring, told = Measuring(data, tmp_path / "examples.npz"), list[Comparison]()
    ended = threading.Event()
    measuring.begin(Pair(good, bad), 60, lambda comparison: (told.append(comparison), ended.set()))
    assert ended.wait(60)
    (comparison,) = told
    assert comparison.running.examples == comparison.candidate.examples == 60
    assert comparison.running.accuracy > 0.7
    # Of the same 60: what the old one has right and the new one wrong, less the other way round.
    gap = comparison.running.accuracy - comparison.candidate.accuracy
    assert comparison.lost - comparison.won == round(60 * gap)
    objection = judge_comparison(comparison, Terms())
    assert objection is not None
    assert objection[0] is Cause.ACCURACY
    measuring.forget()
    assert not (tmp_path / "examples.npz").exists()


def test_the_same_model_against_itself_loses_nothing(data, good) -> None:
    same = found(good, good, data)
    assert (same["lost"], same["won"]) == (0, 0)
    assert same["running"]["accuracy"] == same["candidate"]["accuracy"]


@pytest.mark.parametrize(
    ("spoil", "cause"),
    [
        (lambda path: path.write_bytes(b"no model"), Cause.DAMAGED),
        (lambda path: classifier(path, np.full((65, 10), np.nan)), Cause.DAMAGED),
    ],
)
def test_a_model_that_cannot_be_used_is_told_as_what_it_is(spoil, cause, data, good, tmp_path) -> None:
    path = tmp_path / "candidate.onnx"
    spoil(path)
    assert found(path, good, data)["objection"][0] == cause


def test_the_fastest_good_form_is_made_and_named(data, good, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("edge_client.variants.trying.latencies_ms", lambda models, seconds: [2.0, 1.0])
    made, shown = tmp_path / "made.onnx", local_examples(data, 60)
    wanted = {"made": str(made), "variants": ["fp32", "int8"], "max_loss": 100.0}
    variant, digest = _better(good, wanted, shown, data.train.images[:50])
    assert (variant, digest) == ("int8", digest_of(made.read_bytes()))
    # The export itself where it is as fast.
    monkeypatch.setattr("edge_client.variants.trying.latencies_ms", lambda models, seconds: [1.0, 2.0])
    assert _better(good, wanted, shown, data.train.images[:50]) is None
    (tmp_path / "no.onnx").write_bytes(b"no model")
    assert _better(tmp_path / "no.onnx", wanted, shown, shown.images) is None


def test_a_model_for_other_images_is_told_as_what_it_is(good) -> None:
    images, labels = np.zeros((4, 3, 8, 8), np.uint8), np.zeros(4, np.int64)
    assert _found(good, None, images, labels)["objection"][0] == Cause.INCOMPATIBLE


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os; os.abort()", "signal 6"),
        ("raise MemoryError('no room')", "exit code 1: MemoryError: no room"),
    ],
)
def test_a_model_that_takes_the_process_down_is_no_end_of_the_device(
    code: str, said: str, data, good, tmp_path, monkeypatch
) -> None:
    import subprocess
    import sys

    start = subprocess.Popen
    monkeypatch.setattr(
        "edge_client.rollout.measuring.subprocess.Popen",
        lambda _, **more: start([sys.executable, "-c", code], **more),
    )
    comparison = Measuring(data, tmp_path / "examples.npz")._compare(Pair(good, good), 10)
    assert comparison.objection == (Cause.CRASHES, f"running it ended with {said}")


@pytest.mark.parametrize("text", ["", "nothing", "[]", '{"running": 1}', '{"objection": ["bad luck", ""]}'])
def test_an_answer_that_is_none_counts_as_a_crash(text: str) -> None:
    assert read_comparison(text).objection[0] is Cause.CRASHES


def test_without_examples_nothing_is_compared_and_that_is_said(data, good, tmp_path) -> None:
    empty = LocalData(data.train.subset([]), data.train.subset([]))
    comparison = Measuring(empty, tmp_path / "examples.npz")._compare(Pair(good, good), 10)
    assert comparison.objection[0] is Cause.INCOMPATIBLE


def test_examples_are_those_that_are_never_trained_on_where_there_are_any(data) -> None:
    assert len(local_examples(data, 1000)) == 100
    assert len(local_examples(LocalData(data.train, data.train.subset([])), 1000)) == 600
    assert len(local_examples(data, 0)) == 1


def test_models_are_timed_in_turns() -> None:
    order: list[str] = []

    class Fake:
        def __init__(self, name: str) -> None:
            self.name = name

        def logits(self, images: Any) -> None:
            order.append(self.name)

    images = np.zeros((2, 1, 8, 8), np.uint8)
    assert len(in_turns([Fake("old"), Fake("new")], images, seconds=0.0)) == 2  # type: ignore[list-item]
    assert order == ["old", "new"] * 10
