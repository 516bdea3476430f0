"""Measure runtimes and write the table: `python -m tests.runtimes [ENVIRONMENT ...] [--networks NAME ...]`.

Environments are made below `.venv/runtimes`. Those named, by default all, are measured anew; with networks,
their other rows stay.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from edge_client.inference.runtimes import RUNTIMES
from tests.runtimes.environments import BROWSER, ENVIRONMENTS, TITLES, python_of
from tests.runtimes.files import NETWORKS, write_files
from tests.runtimes.javascript import measure_browser, measure_node
from tests.runtimes.measure import BATCHES
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


def write_inputs(folder: Path, networks: Sequence[str]) -> None:
    """Write the exported files, and beside each what it takes, and what onnxruntime answers."""
    for file in write_files(folder, DATA, networks=networks):
        run, inputs = RUNTIMES["onnxruntime"].load(file.path), file.images.astype(np.float32)
        outputs = {
            f"{batch} {place}": output
            for batch in BATCHES
            for place, output in enumerate(run(inputs[:batch]))
        }
        np.savez(file.path.with_suffix(".npz"), inputs=inputs, **outputs)
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


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The `environments`, by default all, and the `networks`."""
    parser = argparse.ArgumentParser()
    # With no word `choices` would refuse the empty list.
    parser.add_argument("environments", nargs="*", type=_environment, default=[*TITLES])
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=())
    return parser.parse_args(words)


def _environment(name: str) -> str:
    if name not in TITLES:
        raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(TITLES)}")
    return name


def main(words: Sequence[str]) -> int:
    """Measure, and write after each environment; 1 if a runtime refuses a file."""
    args = parse(words)
    results: dict[str, Mapping[str, Mapping[str, object]]] = {**read_results()}
    with tempfile.TemporaryDirectory(prefix="edge-runtimes-") as place:
        folder = Path(place)
        write_inputs(folder, args.networks)
        for name in args.environments:
            kept = results.get(name, {}) if args.networks else {}
            results[name] = {**kept, **measure(name, folder)}
            write_results(results)
            print(name, len(results[name]), flush=True)
    return 1 if any("problem" in row for rows in results.values() for row in rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
