"""Frozen layers run once per example: in all rounds, on all virtual devices, with the same results."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from edge_client.models.frozen_part import SplitNetwork
from edge_server.storage.run_folder import RunFolder
from tests.edge_server.simulation.small import run

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


class Counted:
    """Counts the examples that pass through frozen layers; the search for them also tries drawn ones."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.examples = 0
        own = SplitNetwork.features

        def features(split: SplitNetwork, inputs: Tensor) -> Tensor:
            self.examples += len(inputs)
            return own(split, inputs)

        monkeypatch.setattr(SplitNetwork, "features", features)


def models(folder: Path) -> list[bytes]:
    return [RunFolder(folder).model(number).read_bytes() for number in (1, 2, 3)]


def figures(folder: Path) -> list[object]:
    return [record.evaluation for record in RunFolder(folder).history()]


def test_a_run_with_and_without_the_cache_has_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(monkeypatch)
    run(tmp_path / "kept", "fedavg", *WORDS)
    kept, counted.examples = counted.examples, 0
    run(tmp_path / "not-kept", "fedavg", *WORDS, "training.feature-cache-mb=0")
    assert models(tmp_path / "kept") == models(tmp_path / "not-kept")
    assert kept < counted.examples
    print(kept, counted.examples)
