"""Measure every runtime and write the table: `python -m tests.runtimes [ENVIRONMENT ...]`.

Environments are made below `.venv/runtimes`. With names, those alone are measured anew.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from edge_client.inference.onnx_model import load_model
from tests.runtimes.environments import BROWSER, ENVIRONMENTS, TITLES, python_of
from tests.runtimes.files import write_files
from tests.runtimes.javascript import measure_browser, measure_node
from tests.runtimes.page import Results, page_of

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).parent / "RUNTIMES.md"
RESULTS = Path(__file__).parent / "measured.json"
FOLDER = ROOT / ".venv" / "runtimes"
DATA = ROOT.parent / "shared" / "data"


def read_results() -> Results:
    """By environment and file: the differences at each batch, or the problem."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def write_results(results: Results) -> None:
    """Keep the results, a file a line, and write the page."""
    parts = []
    for name in TITLES:
        rows = results.get(name, {})
        lines = ",\n".join(f"  {json.dumps(file)}: {json.dumps(rows[file])}" for file in sorted(rows))
        parts += [f"{json.dumps(name)}: {{\n{lines}\n}}"] if rows else []
    RESULTS.write_text("{\n" + ",\n".join(parts) + "\n}\n")
    TABLE.write_text(page_of(results))


def write_inputs(folder: Path) -> None:
    """Write the exported files, and beside each what it takes, and what onnxruntime answers."""
    for file in write_files(folder, DATA):
        model = load_model(file.path, threads=1)
        inputs = model.feed(file.images)
        np.savez(file.path.with_suffix(".npz"), inputs=inputs, expected=model.run(inputs))
        file.path.with_suffix(".f32").write_bytes(inputs.tobytes())
        file.path.with_suffix(".shape.json").write_text(json.dumps(inputs.shape))


def measure_python(name: str, folder: Path) -> dict[str, dict[str, object]]:
    """The rows of an environment of Python."""
    command = [python_of(name, FOLDER), "-m", "tests.runtimes.measure", ENVIRONMENTS[name].runtime, folder]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    rows = (json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"file"'))
    return {str(row.pop("file")): row for row in rows}


def measure(name: str, folder: Path) -> Mapping[str, Mapping[str, object]]:
    """The rows of a column of the table."""
    if name in ENVIRONMENTS:
        return measure_python(name, folder)
    return (measure_browser if name == BROWSER else measure_node)(name, folder, FOLDER)


def main(names: Sequence[str]) -> int:
    """Measure, and write after each environment; 1 if an answer is missing or too far off."""
    results: dict[str, Mapping[str, Mapping[str, object]]] = {**read_results()}
    with tempfile.TemporaryDirectory(prefix="edge-runtimes-") as place:
        folder = Path(place)
        write_inputs(folder)
        for name in names or TITLES:
            results[name] = measure(name, folder)
            write_results(results)
            print(name, len(results[name]), flush=True)
    return 1 if any("problem" in row for rows in results.values() for row in rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
