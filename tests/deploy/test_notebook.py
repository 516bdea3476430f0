"""The notebook, run cell by cell."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "deploy" / "examples" / "library.ipynb"


def values(cells: list[str]) -> list[Any]:
    """The value of each cell's last expression, or None."""
    names: dict[str, Any] = {}
    found = []
    for cell in cells:
        tree = ast.parse(cell)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "notebook", "exec"), names)
        found.append(eval(compile(ast.Expression(last.value), "notebook", "eval"), names) if last else None)
    return found


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    recipes, accuracies, sizes, accuracy, again = values(["".join(cell["source"]) for cell in cells])
    assert "adafl" in recipes
    assert {name: len(history) for name, history in accuracies.items()} == {"fedavg": 3, "heterofl": 3}
    assert list(sizes) == [1, 2, 3, 4, 5]
    assert sizes[1] < sizes[5] / 2
    # Chance level is one in ten.
    assert accuracy > 0.3
    assert again == accuracies["fedavg"][-1]
