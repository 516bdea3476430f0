"""The notebook, run in a kernel."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from tests.forked import forked_python
from tests.slow import mark_slow

NOTEBOOK = Path(__file__).parents[2] / "deploy" / "examples" / "library.ipynb"
DEADLINE_S = 300
IN_THE_KERNEL = "dir(edge_server), [len(losses), len(run.rounds)], 'plot' in dir(runs)"

KERNEL = """if True:
    import runpy, sys
    fresh = {"matplotlib", "schemas", "edge_client", "edge_server"}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in fresh and str(getattr(module, "__file__", "")).endswith(".py"):
            del sys.modules[name]
    runpy.run_module("ipykernel_launcher", run_name="__main__", alter_sys=True)
"""
"""A kernel that has imported torch, but neither the packages nor matplotlib, which asks it for pictures."""


def shown(cell: Any, kind: str) -> list[str]:
    """What a cell shows of one kind: its displays, and last its value."""
    return [output["data"][kind] for output in cell.outputs if kind in output.get("data", {})]


def value(cell: Any) -> Any:
    return ast.literal_eval(shown(cell, "text/plain")[-1])


def forked_kernel(folder: Path) -> str:
    """Add a kernel that starts quickly to Jupyter's data folder; returns its name."""
    words = [*forked_python(), "-c", KERNEL, "-f", "{connection_file}"]
    spec = {"argv": words, "display_name": "Python", "language": "python"}
    path = folder / "kernels" / "forked" / "kernel.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(spec))
    return "forked"


@mark_slow
def test_the_notebook_runs_in_a_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat
    from nbclient import NotebookClient

    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(IN_THE_KERNEL))
    client = NotebookClient(
        notebook,
        timeout=DEADLINE_S,
        resources={"metadata": {"path": str(tmp_path)}},
        kernel_name=forked_kernel(tmp_path / "JUPYTER_DATA_DIR"),
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
