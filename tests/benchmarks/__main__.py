"""All benchmarks in one run, one table: `python -m tests.benchmarks`.

Each benchmark is a module with `figures(options) -> list[Figure]`, listed here. One that fails is told and
the others go on.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
import traceback
from datetime import UTC, datetime
from pathlib import Path

from tests.benchmarks.figure import Figure, remarks, table
from tests.benchmarks.machine import describe
from tests.benchmarks.options import Options

BENCHMARKS: dict[str, str] = {
    "bytes": "bytes",
    "overhead": "overhead",
    "flower": "flower.comparison",
    "crowd": "crowd.figures",
    "server-memory": "server_memory",
    "client-memory": "client_memory",
    "simulation": "simulation",
    "simulation-memory": "memory",
    "gpu": "gpu",
}
"""Name on the command line: module below `tests.benchmarks`. In the order in which they run."""


def main() -> None:
    """Run, print the table, keep it and the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"which: {', '.join(BENCHMARKS)} (default: all)"
    )
    parser.add_argument("--data-root", type=Path, default=Path("../shared/data"), help="folder with MNIST")
    parser.add_argument("--folder", type=Path, help="where large files have room (default: TMPDIR)")
    parser.add_argument("--quick", action="store_true", help="one small repetition of each: does it run?")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--markdown", type=Path, help="write the table here")
    args = parser.parse_args()
    unknown = set(args.names) - set(BENCHMARKS)
    if unknown:
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}: {', '.join(BENCHMARKS)}")
    options, machine = Options(args.data_root, args.folder, args.quick), describe()
    figures, seconds = [], {}
    for name in args.names or BENCHMARKS:
        began = time.perf_counter()
        print(f"-- {name}", file=sys.stderr, flush=True)
        figures += _figures(name, options)
        seconds[name] = round(time.perf_counter() - began, 1)
        print(f"   {seconds[name]:.0f} s", file=sys.stderr, flush=True)
    told = f"{table(figures)}\n\n{remarks(figures)}\n"
    print(told)
    if args.markdown:
        args.markdown.write_text(told)
    if args.json:
        everything = {
            "taken": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": " ".join(["python -m tests.benchmarks", *sys.argv[1:]]),
            "machine": machine,
            "seconds": seconds,
            "figures": [one.as_json() for one in figures],
        }
        args.json.write_text(json.dumps(everything, indent=2) + "\n")


def _figures(name: str, options: Options) -> list[Figure]:
    try:
        module = importlib.import_module(f"tests.benchmarks.{BENCHMARKS[name]}")
        found: list[Figure] = module.figures(options)
    except Exception as error:
        traceback.print_exc()
        return [Figure(name, "all of it", "", (), reason=f"{type(error).__name__}: {error}")]
    return found


if __name__ == "__main__":
    main()
