"""The same federation with Flower and with ours: `python -m tests.benchmarks flower`.

Ten SuperNodes of Flower's deployment runtime against ten device processes, both on loopback: the same
networks, data, optimizer and threads per process, FedAvg of all ten, no evaluation, no export.
Each side runs with its defaults: Flower sends float32 both ways; we send half precision down and packed
updates of few levels up. `flower-exact` uses float32 on both sides (nine minutes more, so only if named).
A client takes one step on a single image: practically no work, so that only the framework is timed, but the
model changes in each round. Rounds last from the end of one to the end of the next, and the first of each run
is left out; this leaves one of Flower's rounds per network, which takes a minute or more. Our runs and
Flower's alternate. Flower is configured as documented (see `deployment`); each message starts a ClientApp
process there, which is Flower's default.
The launch lasts from the first command (broker or SuperLink) until the tasks of round one are ready to be
sent and ten clients are connected; both sides record that moment before they send.
"""

import os
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from edge_server.config.config import DEFAULT_DOWNLINK, DEFAULT_UPLINK
from schemas.strategy import Component
from tests.benchmarks.client_data import write_clients
from tests.benchmarks.federation import DEVICES, LARGE, Timings, Work, run
from tests.benchmarks.figure import Figure
from tests.benchmarks.flower.deployment import Rounds, deployment
from tests.benchmarks.flower.environment import Environment, NotInstalled, default_folder, installed
from tests.benchmarks.options import Options

AREA, EXACT = "flower", "flower, float32"
NETWORKS = {"1.66 M": "two-nn", "25 M": LARGE}
OURS, THEIRS = {"1.66 M": 5, "25 M": 3}, 2
"""Rounds of each run, including the first, which does not count."""
MIN_TIME, MIN_EGRESS, MAX_LAUNCH = 20.0, 5.0, 1 / 3


@dataclass(frozen=True)
class Theirs:
    """Flower's run; seconds from launch to the tasks and to the end of round one; MB by process."""

    rounds: Rounds
    tasks_s: float
    closed_s: float
    memory_mb: dict[str, float]


def figures(options: Options) -> list[Figure]:
    """Time and bytes of a round, memory and launch, Flower over ours with the default codecs."""
    return _compared(options, exact=False)


def exact(options: Options) -> list[Figure]:
    """The same figures with float32 both ways on both sides, without targets."""
    return [replace(figure, area=EXACT, target=None) for figure in _compared(options, exact=True)]


def _compared(options: Options, *, exact: bool) -> list[Figure]:
    sizes = {"1.66 M": 2} if options.quick else OURS
    mine, its, version, why = dict[str, Timings](), dict[str, Theirs](), "", ""
    with tempfile.TemporaryDirectory(prefix="edge-bench-", dir=options.folder) as name:
        folder, data = Path(name), Path(name) / "data"
        try:
            write_clients(options.data_root, data, DEVICES, images=1)
        except OSError as error:
            return [Figure(AREA, "all of it", "", (), reason=f"no MNIST: {error}")]
        for size, rounds in sizes.items():
            work, place = Work(NETWORKS[size], 1, rounds, exact=exact), size.replace(" ", "-")
            mine[size] = run(work, data, folder / f"ours-{place}")
            if not why:
                try:
                    environment = installed(default_folder())
                    version = environment.version("flwr")
                    its[size] = _flower(environment, replace(work, rounds=THEIRS), data, folder / place)
                except (NotInstalled, RuntimeError) as error:
                    its, why = {}, str(error)
    shipped = (
        f"models down: {_described(DEFAULT_DOWNLINK)}, updates up: {_described(DEFAULT_UPLINK)}, the default"
    )
    ways = f"ours: {'float32 both ways' if exact else shipped}"
    found = [
        figure for size in sizes for figure in figures_of(size, mine[size], its.get(size), version, why, ways)
    ]
    return [*found, *launch_figures(mine, its, why), memory_figure(its, version, why)]


def _described(codecs: Sequence[Component]) -> str:
    """Codecs as text."""
    options = ("".join(f" ({key} {value})" for key, value in codec.options.items()) for codec in codecs)
    return " and ".join(codec.name + option for codec, option in zip(codecs, options, strict=True))


def _flower(environment: Environment, work: Work, data: Path, folder: Path) -> Theirs:
    with deployment(environment, folder) as deployed:
        watch = deployed.watch()
        taken = deployed.run("run", work, data)
        tasks, closed = (taken.at(what, 1) - deployed.launched for what in ("tasks", "closed"))
        return Theirs(taken, tasks, closed, watch.stop())


def figures_of(size: str, mine: Timings, its: Theirs | None, version: str, why: str, up: str) -> list[Figure]:
    """Figures of one network: our time, and Flower's time and bytes over ours."""
    ours = statistics.median(mine.round_s)
    own = Figure(
        AREA,
        f"a round without work, {size} parameters, ours",
        "ms",
        tuple(1000 * seconds for seconds in mine.round_s),
        detail=f"{up}; processor seconds per round: {mine.cpu}",
    )
    time = f"a round without work, {size} parameters, Flower over ours"
    egress = f"bytes that the server sends, {size} parameters, Flower over ours"
    if its is None:
        return [own, *(Figure(AREA, what, "x", (), reason=why) for what in (time, egress))]
    flower = its.rounds.round_s
    return [
        own,
        Figure(
            AREA,
            time,
            "x",
            tuple(seconds / ours for seconds in flower),
            target=MIN_TIME,
            bound="at least",
            detail=f"Flower {version}: {statistics.median(flower):.1f} s; {up}",
            reason=f"our round is bound by {os.cpu_count()} cores, which devices, server and broker share: "
            f"processor seconds per round {mine.cpu}",
            raw={"flower_s": flower, "ours_s": mine.round_s},
        ),
        Figure(
            AREA,
            egress,
            "x",
            (its.rounds.egress / mine.egress,),
            target=MIN_EGRESS,
            bound="at least",
            detail=f"per round on the server's sockets: {its.rounds.egress / 1e6:.1f} MB from SuperLink to "
            f"SuperNodes, {mine.egress / 1e6:.1f} MB from our server to the broker",
        ),
    ]


def launch_figures(mine: dict[str, Timings], its: dict[str, Theirs], why: str) -> list[Figure]:
    """Seconds from launch to two moments of round one."""
    moments: dict[str, tuple[Callable[[Timings], float], Callable[[Theirs], float], float | None]] = {
        "the tasks of round one are ready": (
            lambda t: t.tasks[1] - t.launched,
            lambda t: t.tasks_s,
            MAX_LAUNCH,
        ),
        "round one is closed": (lambda t: t.closed[1] - t.launched, lambda t: t.closed_s, None),
    }
    return [
        _over(f"launch until {name}, ours over Flower", mine, its, our_seconds, flower_seconds, target, why)
        for name, (our_seconds, flower_seconds, target) in moments.items()
    ]


def _over(
    name: str,
    mine: dict[str, Timings],
    its: dict[str, Theirs],
    our_seconds: Callable[[Timings], float],
    flower_seconds: Callable[[Theirs], float],
    target: float | None,
    why: str,
) -> Figure:
    ours = [our_seconds(reported) for reported in mine.values()]
    detail = f"ours {_seconds(ours)}"
    if not its:
        return Figure(AREA, name, "x", (), target=target, detail=detail, reason=why)
    flower = [flower_seconds(reported) for reported in its.values()]
    ratios = tuple(a / b for a, b in zip(ours, flower, strict=True))
    return Figure(
        AREA,
        name,
        "x",
        ratios,
        target=target,
        detail=f"{detail}, Flower {_seconds(flower)}",
        reason="our server and ten devices start at once on these cores, and the round waits for all",
    )


def _seconds(values: Sequence[float]) -> str:
    return " and ".join(f"{value:.1f}" for value in values) + " s"


def memory_figure(its: dict[str, Theirs], version: str, why: str) -> Figure:
    name = "memory of a client of Flower"
    if not its:
        return Figure(AREA, name, "MB", (), reason=why)
    sizes = next(iter(its.values())).memory_mb
    parts = ", ".join(f"{process.split()[0]} {size:.0f}" for process, size in sizes.items())
    return Figure(
        AREA,
        name,
        "MB",
        (sum(sizes.values()),),
        detail=f"Flower {version}, 1.66 M parameters, peak resident sizes of its processes: {parts}; "
        "ours is in `overhead`",
    )
