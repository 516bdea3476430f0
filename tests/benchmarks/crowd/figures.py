"""A thousand active devices and five thousand idle ones: `python -m tests.benchmarks crowd`.

Protocol-level devices in two processes drive the real session machine over their own connections to one
Mosquitto and one real server with its coordinator, journal and firewall (recipe `heterofl`, `two-nn`, an
equal number of devices per tier). They do not train: an answer is a hundredth of the model, generated
cheaply, with the right shapes and bytes. Four things are measured.

- **egress** for 10, 100 and 1,000 devices: the bytes that the server's socket sent, as the kernel counts
  them, over those of one full model per round in the default codec plus the control messages to the devices
  (with their topics).
- **a round**, with two aggregator processes: seconds from the end of one round to the end of the next
  (planning, tasks, broadcast, answers, checks, journal, aggregation, model on disk), over those of the floor
  (`floor.py`): the same bytes in the same chunks through the same broker, to and from the same connections,
  without any federation logic. The floor runs after the rounds, with their bytes and as many times. Devices,
  broker and server share the machine's cores in both.
- **one process**: the same round without them.
- **receivers**: a round of 100 devices with one receiver process over a round without.
- **idle**: the time until the server has received 5,000 births, memory of broker and server per device, the
  server's processor time meanwhile, and whether the server receives all wills.
"""

import asyncio
import os
import statistics
import tempfile
from pathlib import Path

from edge_server.transport.broker.launch import RunningBroker, find_mosquitto, running_broker
from schemas.tensors.chunks import CHUNK_BYTES
from tests.benchmarks.crowd.device import TIERS, tier_of
from tests.benchmarks.crowd.floor import floor
from tests.benchmarks.crowd.idle import AREA, idle
from tests.benchmarks.crowd.orders import Crowd, crowd
from tests.benchmarks.crowd.rounds import FULL_MODEL_BYTES, NAME, Rounds, federation
from tests.benchmarks.figure import Figure
from tests.benchmarks.options import Options


def figures(options: Options) -> list[Figure]:
    """All figures of this benchmark; without Mosquitto nothing is measured."""
    if find_mosquitto() is None:
        return [Figure(AREA, "all of it", "", (), reason="Mosquitto is not installed")]
    sizes, waiting = ((5, 10, 20), 50) if options.quick else ((10, 100, 1000), 5000)
    return [*asyncio.run(_busy(options, sizes)), *asyncio.run(idle(options, waiting))]


async def _busy(options: Options, sizes: tuple[int, int, int]) -> list[Figure]:
    """Measure egress at every size, receivers at the middle size, and the floor at the last."""
    with (
        tempfile.TemporaryDirectory(prefix="edge-bench-", dir=options.folder) as folder,
        running_broker("mosquitto", Path(folder)) as broker,
    ):
        async with crowd(broker.host, broker.port, NAME) as devices:
            place, few, middle, most = Path(folder), *sizes
            await devices.join(few)
            found = [_egress(few, await federation(devices, broker, place))]
            await devices.join(middle - few)
            alone = await federation(devices, broker, place)
            shared = await federation(devices, broker, place, "federation.receivers=1")
            await devices.join(most - middle)
            rounds = 2 if options.quick else 3
            taken = await federation(devices, broker, place, *SPREAD, rounds=rounds)
            relieved = await federation(devices, broker, place, *RELIEVED, rounds=rounds)
            one = await federation(devices, broker, place, *ONE_PROCESS, rounds=rounds)
            floors = [await _floor(devices, broker, place, taken) for _ in taken.seconds]
    return [
        *found,
        _egress(middle, alone),
        _egress(most, taken),
        *_round_figures(most, taken, one, floors),
        _own_time(most, relieved, one),
        _receivers_figure(middle, shared, alone),
    ]


SPREAD = ("federation.receivers=0", "federation.aggregators=2")
RELIEVED = ("federation.receivers=1", "federation.aggregators=2")
ONE_PROCESS = ("federation.receivers=0", "federation.aggregators=0")


async def _floor(devices: Crowd, broker: RunningBroker, place: Path, rounds: Rounds) -> float:
    """Seconds of the floor with the bytes of these rounds."""
    down = {tier: rounds.down(tier) for tier in range(1, TIERS + 1)}
    return await floor(
        devices,
        (broker.host, broker.port),
        NAME,
        layers={tier: max(1, down[tier] - down.get(tier - 1, 0)) for tier in down},
        up={tier: rounds.up(tier) for tier in down},
        chunk_bytes=CHUNK_BYTES,
        folder=place,
    )


def _egress(size: int, run: Rounds) -> Figure:
    sent, control = (what / len(run.closed) / 1e6 for what in (run.sent, run.counts["control bytes"]))
    return Figure(
        AREA,
        f"server egress, {size:,} devices",
        "x one model + control",
        (run.egress,),
        target=1.03,
        detail=f"{sent:.2f} MB per round on the server's socket; one model is "
        f"{FULL_MODEL_BYTES / 1e6:.2f}, control messages are {control:.2f} MB",
        raw={"sent": run.sent, "counts": dict(run.counts)},
    )


def _round_figures(size: int, taken: Rounds, one: Rounds, floors: list[float]) -> list[Figure]:
    cores = os.cpu_count() or 1
    alone = statistics.median(taken.others_cpu_s) / cores / statistics.median(floors)
    moved = [sum(way(tier_of(n)) for n in range(size)) / 1e6 for way in (taken.down, taken.up)]
    return [
        Figure(
            AREA,
            f"a round, {size:,} devices",
            "x floor",
            tuple(mine / its for mine, its in zip(taken.seconds, floors, strict=True)),
            target=3.0,
            detail=f"{moved[0]:,.0f} MB to the devices and {moved[1]:,.0f} MB from them; the floor writes "
            f"the answers to files and does not wait for the disk; {taken.lost} answers lost",
            reason="unpacking, checking and adding take processor time in whatever process "
            "(deploy/docs/explanation/scale.md lists the time of each step), on cores that broker and "
            f"devices also use: their processor time alone, over {cores} cores, is {alone:.2f} floors",
            raw={"seconds": taken.seconds, "floor": floors, "closed": list(taken.closed)},
        ),
        Figure(AREA, "the same, seconds", "s", taken.seconds),
        Figure(
            AREA,
            "the same over a round in one process",
            "x",
            tuple(mine / its for mine, its in zip(taken.seconds, one.seconds, strict=True)),
            detail=f"`{' '.join(SPREAD)}` over `{' '.join(ONE_PROCESS)}`",
        ),
        Figure(AREA, "the floor, seconds", "s", tuple(floors)),
        Figure(AREA, f"devices per second, {size:,} devices", "1/s", tuple(size / s for s in taken.seconds)),
        Figure(AREA, f"answers lost, {size:,} devices", "", (float(taken.lost),), target=0.0),
        Figure(
            AREA,
            "the broker's and the devices' processor time for such a round",
            "s",
            taken.others_cpu_s,
            detail=f"over {cores} cores {alone:.2f} floors; devices make no decisions in the floor",
        ),
    ]


def _own_time(size: int, relieved: Rounds, one: Rounds) -> Figure:
    return Figure(
        AREA,
        "the server's own processor time per update",
        "ms",
        tuple(1000 * seconds / size for seconds in relieved.cpu_s),
        target=2.0,
        detail=f"with `{' '.join(RELIEVED)}`: all threads of the server's process, user and system; in one "
        f"process {1000 * statistics.median(one.cpu_s) / size:.2f} ms",
        reason="it still decodes, decides, plans, signs and journals for every device, in one interpreter",
    )


def _receivers_figure(size: int, shared: Rounds, alone: Rounds) -> Figure:
    ratios = tuple(mine / its for mine, its in zip(shared.seconds, alone.seconds, strict=True))
    return Figure(
        AREA,
        f"a round with one receiver over one without, {size:,} devices",
        "x",
        ratios,
        detail=f"the server's own process needs {shared.cpu_s[-1]:.2f} s of processor time for such a round "
        f"instead of {alone.cpu_s[-1]:.2f}; {shared.lost} answers lost; receivers help if a core is idle",
    )
