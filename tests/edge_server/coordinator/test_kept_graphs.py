"""Step graphs that the server keeps on disk: a damaged file counts as none, and is written again."""

import logging
from pathlib import Path

import pytest

from edge_server.coordinator.step_graphs import keep_graph, kept_graph

GRAPH = bytes(range(256)) * 40


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGE_GRAPHS", str(tmp_path))
    return tmp_path / "steps"


def test_a_graph_is_kept_by_its_key() -> None:
    keep_graph("a", GRAPH)
    assert kept_graph("a") == GRAPH
    assert kept_graph("b") is None


@pytest.mark.parametrize("length", [0, 20, 32, 500, 10_000])
def test_a_file_that_was_cut_counts_as_none(
    folder: Path, length: int, caplog: pytest.LogCaptureFixture
) -> None:
    keep_graph("a", GRAPH)
    path = folder / "a.step"
    path.write_bytes(path.read_bytes()[:length])
    with caplog.at_level(logging.WARNING):
        assert kept_graph("a") is None
    assert "a.step is damaged: its training step is drawn again" in caplog.text
    keep_graph("a", GRAPH)
    assert kept_graph("a") == GRAPH


@pytest.mark.parametrize("place", [0, 31, 32, 5_000])
def test_a_changed_byte_is_noticed(folder: Path, place: int) -> None:
    keep_graph("a", GRAPH)
    path = folder / "a.step"
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    assert kept_graph("a") is None


def test_a_folder_that_cannot_be_written_is_no_error(folder: Path) -> None:
    folder.write_text("a file")
    keep_graph("a", GRAPH)
    assert kept_graph("a") is None
