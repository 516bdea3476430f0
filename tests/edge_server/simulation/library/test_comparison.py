"""Simulations side by side."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import edge_server
from tests.edge_server.simulation.in_process import in_process
from tests.edge_server.simulation.library.small import SMALL, X, Y

GIVEN = {**SMALL, "data": (X, Y), "model": "mlp", "learning_rate": 0.05}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    import matplotlib
    from matplotlib import pyplot

    matplotlib.use("Agg")
    with in_process():
        yield
    pyplot.close("all")


def test_runs_have_labels_folders_a_table_and_curves(tmp_path: Path) -> None:
    compared = edge_server.compare(["fedavg", "fedavg rounds=1,3"], out=tmp_path, **GIVEN)
    rounds = {label: len(run.rounds) for label, run in compared.runs.items()}
    assert rounds == {"fedavg": 2, "fedavg rounds=1": 1, "fedavg rounds=3": 3}
    folders = ["01-fedavg", "02-fedavg-rounds-1", "03-fedavg-rounds-3"]
    assert [run.folder.name for run in compared.runs.values()] == folders
    final = compared.table["final"]
    assert list(final.index) == list(rounds)
    assert final["fedavg"] == compared.runs["fedavg"].rounds[-1].test_accuracy
    axes = compared.plot()
    assert [line.get_label() for line in axes.lines] == list(rounds)
    assert [tick for tick in axes.get_xticks() if tick % 1] == []
    assert "<td>fedavg rounds=3</td>" in compared._repr_html_()


def test_a_sweep_runs_every_combination_over_the_common_settings_and_repeats_none(tmp_path: Path) -> None:
    grid = {"learning_rate": list(np.array([0.01, 0.1])), "momentum": [np.int64(0), 0.9]}
    swept = edge_server.sweep("fedavg", grid, "rounds=1", out=tmp_path, **GIVEN)
    rates = [
        edge_server.load_config(str(run.folder / "federation.toml")).training for run in swept.runs.values()
    ]
    assert [(rate.learning_rate, rate.momentum) for rate in rates] == [
        (0.01, 0.0),
        (0.01, 0.9),
        (0.1, 0.0),
        (0.1, 0.9),
    ]
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("summary.json")}
    assert edge_server.sweep("fedavg", grid, "rounds=1", out=tmp_path, **GIVEN) == swept
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("summary.json")} == written


def test_two_runs_of_one_label_are_refused(tmp_path: Path) -> None:
    with pytest.raises(edge_server.ConfigError, match="'fedavg' is named twice"):
        edge_server.compare(["fedavg", "fedavg"], out=tmp_path, **GIVEN)


@pytest.mark.parametrize("values", [0.1, "0.1", []])
def test_a_grid_without_a_list_of_values_is_refused_with_an_example(values: object) -> None:
    with pytest.raises(
        edge_server.ConfigError, match=r"is not a list of values: write {'learning_rate': \[0.01, 0.1\]}"
    ):
        edge_server.sweep("fedavg", {"learning_rate": values}, **GIVEN)  # type: ignore[dict-item]


def test_a_single_run_needs_no_list(tmp_path: Path) -> None:
    compared = edge_server.compare("fedavg rounds=1", out=tmp_path, **GIVEN)
    assert list(compared.runs) == ["fedavg rounds=1"]
