"""Frozen layers run once per example: in all rounds, on all virtual devices, with the same results."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor

from edge_client.models.frozen_part import SplitNetwork, find_split
from edge_server.storage.run_folder import RunFolder
from schemas.tensors.files import FileGroups
from tests.edge_server.simulation.small import history, run
from tests.slow import mark_slow, slow

WORDS = (
    "model.name=cnn-batch",
    "num-clients=3",
    "clients.fraction=1.0",
    "samples-per-client=24",
    "test-samples=20",
    "batch-size=8",
    "local-epochs=2",
    "rounds=3",
    "training.train=head",
)
FIGURES = ("train_loss", "test_loss", "test_metrics", "tier_metrics", "harm")
EXAMPLES, TESTED = 3 * 24, 20  # tested on: models, and models without one device


@contextmanager
def counting(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The numbers of examples that pass through frozen layers, but for those of the search for these."""
    passed: list[int] = []
    own, trying = SplitNetwork.features, [0]

    def features(split: SplitNetwork, inputs: Tensor) -> Tensor:
        passed.extend([] if trying[0] else [len(inputs)])
        return own(split, inputs)

    def find(*arguments: object) -> SplitNetwork:
        trying[0] += 1
        try:
            return find_split(*arguments)  # type: ignore[arg-type]
        finally:
            trying[0] -= 1

    with monkeypatch.context() as patch:
        patch.setattr(SplitNetwork, "features", features)
        patch.setattr("edge_client.models.frozen_part.find_split", find)
        patch.setattr("edge_client.training.evaluation.find_split", find)
        patch.setattr("edge_server.coordinator.global_model.find_split", find)
        yield passed


def results(folder: Path) -> tuple[list[bytes], list[str]]:
    """The models of all rounds, and their figures."""
    models = [RunFolder(folder).model(number).read_bytes() for number in (1, 2, 3)]
    return models, [json.dumps([each[name] for name in FIGURES]) for each in history(folder)]


@pytest.mark.parametrize("recipe", [slow("fedavg"), "scaffold"])
def test_a_run_with_and_without_the_cache_has_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: str
) -> None:
    with counting(monkeypatch) as passed:
        run(tmp_path / "kept", recipe, *WORDS)
    assert sum(passed) == EXAMPLES + 2 * TESTED
    kept = [[*each["features"].values()] for each in history(tmp_path / "kept")]
    assert [sum(each["computed"] for each in devices) for devices in kept] == [EXAMPLES, 0, 0]
    assert [sum(each["examples"] for each in devices) for devices in kept] == 3 * [EXAMPLES]
    with counting(monkeypatch) as passed:
        run(tmp_path / "not-kept", recipe, *WORDS, "training.feature-cache-mb=0")
    assert sum(passed) == 3 * EXAMPLES + 2 * TESTED
    assert results(tmp_path / "kept") == results(tmp_path / "not-kept")


@mark_slow
@pytest.mark.parametrize("recipe", ["attending", "hermes", "fjord"])
def test_an_objective_that_looks_behind_the_features_alone_trains_on_them(
    tmp_path: Path, recipe: str
) -> None:
    words = ("tiers.ratios=[{ linear2 = 0.5 }, 0.0]", 'training.train=["linear2", "head"]')
    run(tmp_path / "kept", recipe, *WORDS[:-1], *words)
    # A tier's channels are others in each round, and what is frozen stays the same. In the last round of
    # `attending` devices measure statistics, and train nothing.
    kept = [
        sum(each["computed"] for each in line.get("features", {}).values())
        for line in history(tmp_path / "kept")
    ]
    assert kept == [EXAMPLES, 0, 0]
    run(tmp_path / "not-kept", recipe, *WORDS[:-1], *words, "training.feature-cache-mb=0")
    assert results(tmp_path / "kept") == results(tmp_path / "not-kept")


@pytest.mark.parametrize("trainer", ["torch", slow("onnx")])
def test_the_last_round_measures_statistics_of_trained_layers_alone(tmp_path: Path, trainer: str) -> None:
    words = ('training.train=["norm2", "norm2.running_*", "head"]', f"simulation.trainer={trainer}")
    run(tmp_path / "run", "attending", *WORDS[:-1], *words)
    lines, folder = history(tmp_path / "run"), RunFolder(tmp_path / "run")
    passed = [sum(each["computed"] for each in line["features"].values()) for line in lines]
    assert (lines[-1]["train_loss"], passed) == (None, [EXAMPLES, 0, 0])
    first, last = (FileGroups(folder.model(number))["model"] for number in (1, 3))
    changed = {name for name in first if not np.array_equal(first[name], last[name])}
    norm = {f"norm2.{name}" for name in ("weight", "bias", "running_mean", "running_var")}
    assert changed == {*norm, "linear3.weight", "linear3.bias"}


def test_what_other_tiers_train_is_behind_the_features(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ('tiers.ratios=[{ "*" = 0.5 }, 0.0]', 'tiers.train=["head", ["linear2", "head"]]', "rounds=2")
    with counting(monkeypatch) as passed:
        run(tmp_path / "run", "fedavg", *WORDS[:-1], *words)
    assert sum(passed) == EXAMPLES + 3 * TESTED


def test_an_objective_that_needs_inputs_runs_all_layers_and_that_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with counting(monkeypatch) as passed:
        run(tmp_path / "run", "fedmix", *WORDS, "rounds=2")
    assert set(passed) == {TESTED}
    said = [record.getMessage() for record in caplog.records if "every step" in record.getMessage()]
    reason = "the objective 'mix' needs more than outputs"
    assert said.count(f"devices run frozen layers in every step: {reason}") == 1
