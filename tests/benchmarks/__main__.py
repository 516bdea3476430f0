"""All benchmarks in one run and one table: `python -m tests.benchmarks`.

Each benchmark is a module with `figures(options) -> list[Figure]`, or another function of that type, listed
here. A benchmark that fails is reported and the others continue. README.md gives the time limit of each.
"""

import argparse
import importlib
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks.figure import Figure
from tests.benchmarks.machine import describe
from tests.benchmarks.options import Options
from tests.benchmarks.results import Results

BENCHMARKS: dict[str, str] = {
    "bytes": "bytes",
    "overhead": "overhead",
    "flower": "flower.comparison",
    "crowd": "crowd.figures",
    "out-of-band": "outofband",
    "server-memory": "server_memory",
    "server-start": "server_start",
    "client-memory": "client_memory",
    "torch-free": "torch_free",
    "step-graphs": "step_graphs",
    "simulation": "simulation",
    "time-to-accuracy": "time_to_accuracy",
    "testing": "testing",
    "simulation-memory": "memory",
    "layout": "layout",
    "features": "features",
    "allocator": "allocator",
    "inventory": "inventory",
    "cohorts": "cohorts",
    "gpu": "gpu",
    "pruned": "pruned",
}
"""Name on the command line: module below `tests.benchmarks`. In the order in which they run."""
LONGER: dict[str, str] = {
    "sites": "sites",
    "bytes-all": "bytes:every",
    "flower-exact": "flower.comparison:exact",
    "step-graphs-deep": "step_graphs:deep",
    "providers": "providers",
    "features-device": "features:device",
    "features-flower": "features:flower",
    "features-memory": "features_memory",
}
"""Benchmarks that run only if named, as module and function; the table keeps their results."""


def main() -> None:
    """Run the benchmarks, save the results of each when it ends, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    known = {**BENCHMARKS, **LONGER}
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"which: {', '.join(BENCHMARKS)} (default: all of these), {', '.join(LONGER)}",
    )
    parser.add_argument("--data-root", type=Path, default=Path("../shared/data"), help="folder with MNIST")
    parser.add_argument("--folder", type=Path, help="folder for large files (default: TMPDIR)")
    parser.add_argument("--quick", action="store_true", help="one small repetition of each: does it run?")
    parser.add_argument(
        "--results",
        type=Path,
        metavar="DIR",
        help="store table.md and figures.json here; results of other benchmarks in them are kept",
    )
    args = parser.parse_args()
    unknown = set(args.names) - set(known)
    if unknown:
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}: {', '.join(known)}")
    # Like Ctrl-C: the processes that a benchmark has started end with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options = Options(args.data_root, args.folder, args.quick)
    results, all_began = Results.load(args.results), time.perf_counter()
    for name in args.names or BENCHMARKS:
        print(f"-- {name}", file=sys.stderr, flush=True)
        machine, began = describe(), time.perf_counter()
        figures = _figures(name, known[name], options)
        seconds = time.perf_counter() - began
        results = results.with_found(name, figures, machine=machine, seconds=seconds)
        results.save(list(known))
        print(f"   {seconds:.0f} s", file=sys.stderr, flush=True)
    print(f"-- all of it: {time.perf_counter() - all_began:.0f} s", file=sys.stderr)
    print(results.reported(list(known)))


def found(place: str) -> Callable[[Options], list[Figure]]:
    """Import the function of a benchmark: `module` or `module:function`."""
    module, _, function = place.partition(":")
    function_: Callable[[Options], list[Figure]] = getattr(
        importlib.import_module(f"tests.benchmarks.{module}"), function or "figures"
    )
    return function_


def _figures(name: str, place: str, options: Options) -> list[Figure]:
    try:
        return found(place)(options)
    except Exception as error:
        traceback.print_exc()
        return [Figure(name, "all of it", "", (), reason=f"{type(error).__name__}: {error}")]


if __name__ == "__main__":
    main()
