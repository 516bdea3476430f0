"""The notebook, run in a kernel."""

import ast
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "deploy" / "examples" / "library.ipynb"
DEADLINE_S = 300
IN_THE_KERNEL = "dir(edge_server), [len(losses), len(run.rounds)], 'plot' in dir(runs)"


def shown(cell: Any, kind: str) -> list[str]:
    """What a cell shows of one kind: its displays, and last its value."""
    return [output["data"][kind] for output in cell.outputs if kind in output.get("data", {})]


def value(cell: Any) -> Any:
    return ast.literal_eval(shown(cell, "text/plain")[-1])


def test_the_notebook_runs_in_a_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat
    from nbclient import NotebookClient

    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(IN_THE_KERNEL))
    client = NotebookClient(
        notebook, timeout=DEADLINE_S, resources={"metadata": {"path": str(tmp_path)}}, kernel_name="python3"
    )
    client.execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    recipes, runs, plot, history, sizes, accuracy, own, rates, again, names = cells

    assert "adafl" in value(recipes)
    assert "<td>heterofl</td>" in "".join(shown(runs, "text/html"))
    assert shown(plot, "image/png")
    assert "test_accuracy" in shown(history, "text/html")[-1]
    assert list(value(sizes)) == [1, 2, 3, 4, 5]
    assert value(sizes)[1] < value(sizes)[5] / 2
    # Chance level is one in ten, and one in three.
    assert value(accuracy) > 0.3
    assert value(again) > 0.5
    bar, table = shown(own, "text/html")
    assert '<progress value="3" max="3"></progress> 3 of 3 rounds' in bar
    assert "<table>" in table
    said = "".join(output.get("text", "") for output in own.outputs)
    assert "trains in this process: 'Net' is defined in this program alone" in said
    assert "fedavg learning-rate=0.1" in shown(rates, "text/html")[-1]
    offered, rounds, has_plot = value(names)
    assert "simulate" in offered
    assert rounds == [3, 3]
    assert has_plot
