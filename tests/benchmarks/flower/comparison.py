"""The same federation with Flower and with ours: `python -m tests.benchmarks flower`.

Ten SuperNodes of Flower's deployment runtime against ten device processes, both on loopback: the same
networks, data, optimizer and threads per process, FedAvg of all ten, nobody evaluates, nothing is exported.
Each is taken as it is shipped: Flower sends float32 both ways, ours halves down and updates in few levels,
packed, up. `flower-exact` is the same with float32 on both sides (nine minutes more, so only where named).
A client takes one step on a single image: as good as no work, so that what is timed is the framework, but
the model that is sent is another one in each round. Rounds run from the end of one to the
end of the next, and the first of each run is left out; of Flower's there is then one for each network, which
takes a minute or more. Ours and Flower's take turns. Flower is configured as its documentation says
(see `deployment`); each message starts a ClientApp process there, which is Flower's default.
The launch runs from the first command (broker or SuperLink) to the moment when the tasks of round one are
ready to be sent, ten clients being there; both sides note that before they send.
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
"""Rounds of each run. The first does not count."""
MIN_TIME, MIN_EGRESS, MAX_LAUNCH = 20.0, 5.0, 1 / 3


@dataclass(frozen=True)
class Theirs:
    """Flower's run, how long it took from launch to the tasks of round one and to its end, MB by process."""

    rounds: Rounds
    tasks_s: float
    closed_s: float
    memory_mb: dict[str, float]


def figures(options: Options) -> list[Figure]:
    """Time and bytes of a round, memory and launch, with Flower over ours as shipped."""
    return _compared(options, exact=False)


def exact(options: Options) -> list[Figure]:
    """The same with float32 both ways on both sides; there is no target for that."""
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
        f"models go down in {_told(DEFAULT_DOWNLINK)}, updates up in {_told(DEFAULT_UPLINK)}, as shipped"
    )
    ways = f"ours: {'float32 both ways' if exact else shipped}"
    found = [
        figure for size in sizes for figure in _sizes(size, mine[size], its.get(size), version, why, ways)
    ]
    return [*found, *_launch(mine, its, why), _memory(its, version, why)]


def _told(codecs: Sequence[Component]) -> str:
    """Codecs in words."""
    options = ("".join(f" ({key} {value})" for key, value in codec.options.items()) for codec in codecs)
    return " and ".join(codec.name + said for codec, said in zip(codecs, options, strict=True))


def _flower(environment: Environment, work: Work, data: Path, folder: Path) -> Theirs:
    with deployment(environment, folder) as deployed:
        watch = deployed.watch()
        taken = deployed.run("run", work, data)
        tasks, closed = (taken.at(what, 1) - deployed.launched for what in ("tasks", "closed"))
        return Theirs(taken, tasks, closed, watch.stop())


def _sizes(size: str, mine: Timings, its: Theirs | None, version: str, why: str, up: str) -> list[Figure]:
    """Of one network: our own time, and what Flower takes and sends for each of ours."""
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
            detail=f"per round on the server's sockets: {its.rounds.egress / 1e6:.1f} MB of the SuperLink to "
            f"its SuperNodes, {mine.egress / 1e6:.1f} MB of ours to the broker",
        ),
    ]


def _launch(mine: dict[str, Timings], its: dict[str, Theirs], why: str) -> list[Figure]:
    """How long until round one, to two moments."""
    moments: dict[str, tuple[Callable[[Timings], float], Callable[[Theirs], float], float | None]] = {
        "the tasks of round one are ready": (
            lambda t: t.tasks[1] - t.launched,
            lambda t: t.tasks_s,
            MAX_LAUNCH,
        ),
        "round one is closed": (lambda t: t.closed[1] - t.launched, lambda t: t.closed_s, None),
    }
    return [
        _over(f"launch until {name}, ours over Flower", mine, its, one, other, target, why)
        for name, (one, other, target) in moments.items()
    ]


def _over(
    name: str,
    mine: dict[str, Timings],
    its: dict[str, Theirs],
    one: Callable[[Timings], float],
    other: Callable[[Theirs], float],
    target: float | None,
    why: str,
) -> Figure:
    ours = [one(reported) for reported in mine.values()]
    detail = f"ours {_seconds(ours)}"
    if not its:
        return Figure(AREA, name, "x", (), target=target, detail=detail, reason=why)
    flower = [other(reported) for reported in its.values()]
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


def _memory(its: dict[str, Theirs], version: str, why: str) -> Figure:
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
