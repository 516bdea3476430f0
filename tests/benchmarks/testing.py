"""The cost of testing every round's model: `python -m tests.benchmarks testing`.

`attending` with its defaults on MNIST: five devices, one per tier, each with 12,000 images, an epoch of batch
32; the server tests the model and every tier on the 10,000 test images. The same run without tests has one
test image, and tests only after its last round. Both alternate, in a simulation and over a broker with a
process per device. Seconds are those of the rounds after the first: from the close of the first to the end
of the run in a simulation, to the last close over a broker. One run that tests between rounds, in the
server itself, must have the same history.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.federation import journal
from tests.benchmarks.figure import Figure
from tests.benchmarks.options import Options
from tests.benchmarks.processes import Started, processes

AREA = "testing"
TARGET = 1.1
LIMIT_S = 900.0
NEVER = ("test-samples=1", "evaluate-every=1000")
TAKES = 0.2
"""Seconds between two looks at the processes."""


@dataclass(frozen=True)
class Taken:
    """A run: seconds of its rounds after the first, and of processor of all its processes."""

    seconds: float
    cpu_s: float
    history: bytes


def figures(options: Options) -> list[Figure]:
    """Runs with tests over runs without, in pairs."""
    if not (options.data_root / "MNIST").exists():
        return [Figure(AREA, "a run with tests over one without", "x", (), reason="no MNIST")]
    rounds, pairs = (2, 1) if options.quick else (3, 3)
    words = [
        *("data.source=MNIST", f'data.data-root="{options.data_root.resolve()}"', f"rounds={rounds}"),
        *("workers=2", "deliver=none"),
    ]
    if options.quick:
        words.append("samples-per-client=200")
    with tempfile.TemporaryDirectory(prefix="edge-bench-", dir=options.folder) as name:
        folder = Path(name)
        simulated = [_pair(folder / f"simulated-{n}", "simulate", words) for n in range(pairs)]
        between = _run(folder / "between", "simulate", [*words, "testers=0"])
        served = [_pair(folder / f"served-{n}", "demo", words) for n in range(1 if options.quick else pairs)]
    if between.history != simulated[0][0].history:
        raise RuntimeError("tests beside the rounds changed the history")
    return [
        *_ratios("a simulation with tests over one without", simulated),
        Figure(
            AREA,
            "  the same, tested between rounds",
            "x",
            (between.seconds / simulated[-1][1].seconds,),
            detail="`[federation] testers = 0`, over the last run without tests; the history is the same",
        ),
        *_ratios("rounds over a broker with tests over rounds without", served),
    ]


def _ratios(name: str, pairs: Sequence[tuple[Taken, Taken]]) -> Iterator[Figure]:
    tested, plain = pairs[-1]
    yield Figure(
        AREA,
        name,
        "x",
        tuple(one.seconds / other.seconds for one, other in pairs),
        target=TARGET,
        detail=f"last pair {tested.seconds:.1f} s over {plain.seconds:.1f} s; 10,000 test images, five tiers",
        reason="the tests' processor time, where the workers leave no core idle (next line)",
        raw={"seconds": [(one.seconds, other.seconds) for one, other in pairs]},
    )
    yield Figure(
        AREA,
        "  processor time",
        "x",
        tuple(one.cpu_s / other.cpu_s for one, other in pairs),
        detail=f"last pair {tested.cpu_s:.1f} s over {plain.cpu_s:.1f} s, of all processes from start to end",
        raw={"seconds": [(one.cpu_s, other.cpu_s) for one, other in pairs]},
    )


def _pair(folder: Path, verb: str, words: Sequence[str]) -> tuple[Taken, Taken]:
    return _run(folder / "tested", verb, words), _run(folder / "plain", verb, [*words, *NEVER])


def _run(out: Path, verb: str, words: Sequence[str]) -> Taken:
    command = [sys.executable, "-m", "edge_server.cli.main", verb, "attending", *words, "--out", str(out)]
    with processes() as started:
        process = started.start(verb, command, log=out.with_suffix(".log"))
        cpu_s = _processor(started, process)
        ended = time.time()
    _, closed = journal(out / "journal.sqlite")
    until = ended if verb == "simulate" else max(closed.values())
    return Taken(until - closed[1], cpu_s, (out / "history.jsonl").read_bytes())


def _processor(started: Started, process: "subprocess.Popen[bytes]") -> float:
    """Wait for the end; the processor seconds of the process and its descendants."""
    seen: dict[int, float] = {}
    until = time.monotonic() + LIMIT_S
    while process.poll() is None:
        if time.monotonic() > until:
            raise RuntimeError(f"not done within {LIMIT_S:g} s: {process.args!r}")
        seen |= _of_family(process.pid)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(TAKES)
    started.check()
    return sum(seen.values())


def _of_family(root: int) -> dict[int, float]:
    """Processor seconds so far of a process and all that descend from it, by process id."""
    tick, parents, used = os.sysconf("SC_CLK_TCK"), dict[int, int](), dict[int, float]()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            pid = int(entry.name)
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            parents[pid], used[pid] = int(fields[1]), (int(fields[11]) + int(fields[12])) / tick
    family, grown = {root}, True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in family} - family
        family, grown = family | more, bool(more)
    return {pid: used[pid] for pid in family if pid in used}
