"""Idle devices: what their births, connections and wills cost broker and server."""

import asyncio
import contextlib
import tempfile
import time
from pathlib import Path

from edge_server.transport.broker.launch import running_broker
from tests.benchmarks.crowd.orders import Child, child, crowd
from tests.benchmarks.crowd.rounds import NAME, words
from tests.benchmarks.figure import Figure
from tests.benchmarks.options import Options
from tests.benchmarks.processes import cpu_seconds
from tests.benchmarks.resident import rss

AREA = "crowd"
IDLE_WATCH_S = 5.0


async def idle(options: Options, size: int) -> list[Figure]:
    """Let `size` devices connect, wait for a while, and lose their connections."""
    with (
        tempfile.TemporaryDirectory(prefix="edge-bench-", dir=options.folder) as place,
        running_broker("mosquitto", Path(place)) as broker,
    ):
        mosquitto = _child_of(broker.pid)
        async with (
            child("federation", *words(broker, Path(place), size + 1, 1)) as server,
            crowd(broker.host, broker.port, NAME) as devices,
        ):
            await _until_there(server, 0)
            before = {pid: rss(pid) or 0 for pid in (mosquitto, server.pid)}
            began = time.perf_counter()
            await devices.join(size)
            joined = time.perf_counter() - began
            await _until_there(server, size)
            received = time.perf_counter() - began
            each = {pid: ((rss(pid) or 0) - memory) / size for pid, memory in before.items()}
            watched, busy = 1.0 if options.quick else IDLE_WATCH_S, cpu_seconds(server.pid)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(server.hear("ended"), watched)
            busy = (cpu_seconds(server.pid) - busy) / watched
            lost = (await devices.counts())["lost"]
            began = time.perf_counter()
            await devices.all_do("leave", "left")
            await _until_there(server, 0)
            died = time.perf_counter() - began
    name = f"{size:,} idle devices"
    return [
        Figure(
            AREA, f"{name}: connected and born", "s", (joined,), detail="with a will, at most 200 at once"
        ),
        Figure(AREA, f"{name}: all births heard by the server", "s", (received,)),
        Figure(AREA, f"{name}: memory per device, broker", "kB", (each[mosquitto] / 1e3,)),
        Figure(AREA, f"{name}: memory per device, server", "kB", (each[server.pid] / 1e3,)),
        Figure(AREA, f"{name}: processor time of the server", "% of a core", (100 * busy,)),
        Figure(AREA, f"{name}: connections lost", "", (float(lost),), target=0.0),
        Figure(AREA, f"{name}: all wills heard after a cut", "s", (died,)),
    ]


async def _until_there(server: Child, devices: int) -> None:
    while (await server.hear("there"))["devices"] != devices:
        pass


def _child_of(pid: int) -> int:
    """The process of the broker, which is a child of the process that ends it."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0]) if children else pid
