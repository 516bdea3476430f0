"""What is said of a run changes nothing in it; with differential privacy nobody hears of who was drawn."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from edge_server.coordinator.aggregator import Aggregator
from edge_server.coordinator.planner import Planner
from edge_server.storage.journal_reader import JournalReader
from tests.integration.bench import Bench


def run(folder: Path, recipe: str, *words: str) -> tuple[bytes, ...]:
    """Two rounds; the models after them."""
    bench = Bench(folder, recipe, *words)
    for number in (1, 2):
        bench.round(number)
    bench.coordinator.suspend()
    models = sorted((folder / "run" / "models").glob("*/state.safetensors"))
    return tuple(path.read_bytes() for path in models)


def said(folder: Path) -> tuple[int, int]:
    """How many plannings, and how many rounds, there is anything said of."""
    with closing(JournalReader(folder / "run" / "journal.sqlite")) as reader:
        return len(reader.choices()), len(reader.observations())


def test_a_run_of_which_nothing_is_said_comes_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("fraction=0.5", 'strategy.selection="attention"', "model.name=mlp")
    spoken = run(tmp_path / "spoken", "attending-igfl", *words)
    monkeypatch.setattr(Planner, "_choices", lambda *_: None)
    monkeypatch.setattr(Aggregator, "_observation", lambda *_, **more: None)
    assert run(tmp_path / "silent", "attending-igfl", *words) == spoken
    assert (said(tmp_path / "spoken"), said(tmp_path / "silent")) == ((2, 2), (0, 0))


def test_with_differential_privacy_nobody_learns_why_some_were_drawn(tmp_path: Path) -> None:
    run(tmp_path, "dp-fedavg", "num-clients=2", "model.name=mlp")
    assert said(tmp_path) == (0, 2)
