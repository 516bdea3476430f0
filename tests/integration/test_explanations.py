"""Explanations change nothing in a run; with differential privacy the selection is not explained."""

from contextlib import closing
from pathlib import Path

import pytest

from edge_server.coordinator.aggregator import Aggregator
from edge_server.coordinator.planner import Planner
from edge_server.storage.journal_reader import JournalReader
from tests.integration.bench import Bench


def run(folder: Path, recipe: str, *words: str) -> tuple[bytes, ...]:
    """The models after each of two rounds."""
    bench = Bench(folder, recipe, *words)
    for number in (1, 2):
        bench.round(number)
    bench.coordinator.storage.close()
    models = sorted((folder / "run" / "models").glob("*/state.safetensors"))
    return tuple(path.read_bytes() for path in models)


def explained(folder: Path) -> tuple[int, int]:
    """The number of explained plannings and of explained rounds."""
    with closing(JournalReader(folder / "run" / "journal.sqlite")) as reader:
        return len(reader.choices()), len(reader.observations())


def test_a_run_without_explanations_yields_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("fraction=0.5", 'strategy.selection="attention"', "model.name=mlp")
    with_explanations = run(tmp_path / "explained", "attending-igfl", *words)
    monkeypatch.setattr(Planner, "explain_choices", lambda *_: None)
    monkeypatch.setattr(Aggregator, "observe_round", lambda *_, **more: None)
    assert run(tmp_path / "unexplained", "attending-igfl", *words) == with_explanations
    assert (explained(tmp_path / "explained"), explained(tmp_path / "unexplained")) == ((2, 2), (0, 0))


def test_with_differential_privacy_the_selection_is_not_explained(tmp_path: Path) -> None:
    run(tmp_path, "dp-fedavg", "num-clients=2", "model.name=mlp")
    assert explained(tmp_path) == (0, 2)
