"""The cost of a round beyond its training: `python -m tests.benchmarks overhead`.

Ten device processes, Mosquitto and `edge-server run`, `fedavg` with the full `two-nn` (1.66 M parameters),
600 images of MNIST per device, one epoch of SGD, batch 32, one thread per process. The floor is the training
alone, in ten warm processes at the same time on the same cores (`floor`). Both alternate. Updates use the
default codec: few levels, packed.
The floor is the loop that one would write without a federation. A device's own training may be faster than
that loop, because its allocator keeps freed memory. The difference is a separate figure (`device_training`):
it hides an equal part of the federation's cost.
A round lasts from the end of one to the end of the next: planning, sending, training, checking, aggregating,
writing model, checkpoint and journal to disk. The first round, in which devices import torch, is left out.
Nothing is evaluated: no data is held out and the server has none.
"""

import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.benchmarks.client_data import write_clients
from tests.benchmarks.client_import import Turn, import_figure, imports
from tests.benchmarks.device_training import device_over_plain
from tests.benchmarks.federation import DEVICES, Timings, Work, run
from tests.benchmarks.figure import Figure
from tests.benchmarks.floor import floor, training
from tests.benchmarks.options import Options

AREA = "overhead"
MAX_RATIO = 1.05
IMPORTS = 3
"""Measurements of the client's import after each run."""
MAX_DEVICE_MB = 350.0


def figures(options: Options) -> list[Figure]:
    """Rounds over the training alone, measured before and after each run; a device's memory and import."""
    pairs, rounds, epochs = (1, 2, 1) if options.quick else (6, 5, 2)
    with tempfile.TemporaryDirectory(prefix="edge-bench-", dir=options.folder) as name, imports() as turn:
        data = Path(name) / "data"
        try:
            write_clients(options.data_root, data, DEVICES)
        except OSError as error:
            missing = Figure(AREA, "a round over its training", "x", (), reason=f"no MNIST: {error}")
            return [missing, import_figure([turn()])]
        work = Work(rounds=rounds)
        taken, imported = _turns(work, data, Path(name), turn, pairs=pairs, epochs=epochs)
        make_epoch = partial(training, work.network, data, 0)
        trained = _training(device_over_plain(make_epoch, pairs=1 if options.quick else 5))
    return [*_rounds(taken), trained, _memory([reported for _, reported in taken]), import_figure(imported)]


def _turns(
    work: Work, data: Path, folder: Path, imported: Callable[[], Turn], *, pairs: int, epochs: int
) -> tuple[list[tuple[float, Timings]], list[Turn]]:
    """Pairs of a floor, measured before and after the run, and the run; imports measured after each run."""
    taken, turns = [], []
    with floor(work, data) as epoch:
        before = [epoch() for _ in range(epochs)]
        for number in range(pairs):
            reported = run(work, data, folder / f"federation-{number}")
            after = [epoch() for _ in range(epochs)]
            taken.append((statistics.median(before + after), reported))
            turns += [imported() for _ in range(IMPORTS)]
            before = after
    return taken, turns


def _rounds(taken: list[tuple[float, Timings]]) -> list[Figure]:
    floors = [seconds for seconds, _ in taken]
    ours = [statistics.median(reported.round_s) for _, reported in taken]
    beyond = tuple(1000 * (mine - its) for mine, its in zip(ours, floors, strict=True))
    last = taken[-1][1]
    ratio = Figure(
        AREA,
        "a round over its training alone",
        "x",
        tuple(mine / its for mine, its in zip(ours, floors, strict=True)),
        target=MAX_RATIO,
        detail=f"{statistics.median(ours):.2f} s against {statistics.median(floors):.2f} s in ten warm "
        f"processes; first round and evaluation left out; processor seconds per round: {last.cpu}",
        reason="the last upload, its check, the aggregation, waits for the disk, the planning and the "
        "download are sequential, and the other work of the devices shares these cores",
        raw={"floor_s": floors, "round_s": [reported.round_s for _, reported in taken]},
    )
    return [ratio, Figure(AREA, "a round beyond its training", "ms", beyond)]


def _training(ratios: tuple[float, ...]) -> Figure:
    return Figure(
        AREA,
        "  the training alone, on a device over the plain loop",
        "x",
        ratios,
        detail="processor time of an epoch with a device's allocator, in a thread of its own, over that of "
        "the floor's loop; identical results, on an otherwise idle machine",
    )


def _memory(runs: list[Timings]) -> Figure:
    return Figure(
        AREA,
        "memory of a device, at most",
        "MB",
        tuple(reported.memory_mb["device"] for reported in runs),
        target=MAX_DEVICE_MB,
        detail="peak resident size (VmHWM) of one process that trains `two-nn`; the server's was "
        f"{runs[-1].memory_mb['server']:.0f} MB",
    )
