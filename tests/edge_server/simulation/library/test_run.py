"""A run as a notebook shows it."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

import edge_server
from tests.edge_server.simulation.in_process import in_process
from tests.edge_server.simulation.library.small import SMALL, X, Y


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> edge_server.Run:
    with in_process():
        out = tmp_path_factory.mktemp("runs") / "run"
        return edge_server.simulate("fedavg", data=(X, Y), model="mlp", out=out, **SMALL)


def test_its_history_is_a_table_and_its_curve_is_drawn(run: edge_server.Run) -> None:
    import matplotlib
    from matplotlib import pyplot

    matplotlib.use("Agg")
    assert list(run.history["test_accuracy"]) == [record.test_accuracy for record in run.rounds]
    axes = run.plot(label="mine")
    assert list(axes.lines[0].get_ydata()) == list(run.history["test_accuracy"])
    assert run.plot(axes) is axes
    assert len(axes.lines) == 2
    pyplot.close("all")


def test_it_is_short_in_a_terminal_and_a_table_in_a_notebook(run: edge_server.Run) -> None:
    assert repr(run).startswith(f"<Run {run.folder}: outcome finished, rounds 2, test accuracy ")
    assert len(repr(run)) < 300
    odd = replace(run, summary=run.summary.model_copy(update={"detail": "<b>"}))
    assert "finished &lt;b&gt;" in odd._repr_html_()


@pytest.mark.parametrize(
    ("package", "used"), [("pandas", lambda run: run.history), ("matplotlib", lambda run: run.plot())]
)
def test_a_missing_package_is_named_with_the_remedy(
    run: edge_server.Run, monkeypatch: pytest.MonkeyPatch, package: str, used: object
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        edge_server.ConfigError, match=rf"{package}.*: pip install 'edge-federation\[notebook\]'"
    ):
        used(run)  # type: ignore[operator]
    assert Path(run.folder, "summary.json").exists()
