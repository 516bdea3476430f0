"""A process of devices: `python -m tests.benchmarks.crowd.process HOST PORT FEDERATION`.

It reads orders and writes results as JSON lines.
"""

import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.benchmarks.crowd.contents import Contents
from tests.benchmarks.crowd.device import Device, Place, PlainPart
from tests.benchmarks.crowd.wire import KEEP_ALIVE_S
from tests.benchmarks.resident import rss

TICK_S, AT_ONCE = 0.25, 100


class Process:
    """Some of the devices of one federation."""

    def __init__(self, host: str, port: int, federation: str, folder: Path) -> None:
        self._host, self._port = host, port
        self._place = Place(federation, Contents(folder))
        self._devices: list[Device] = []
        self._came: Counter[str] = Counter()

    async def run(self) -> None:
        """Carry out orders until the input ends."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        ticking = loop.create_task(self._tick())
        while line := await reader.readline():
            await self._do(json.loads(line))
        ticking.cancel()

    async def _do(self, order: dict[str, Any]) -> None:
        match order:
            case {"do": "join", "numbers": numbers}:
                began = time.monotonic()
                await self._join(numbers)
                say(event="joined", seconds=time.monotonic() - began)
            case {"do": "plain", "down": down, "up": up, "chunk": chunk}:
                self._came.clear()
                data = random.randbytes(chunk)
                for device in self._devices:
                    tier = str(device.tier)
                    device.plain = PlainPart(
                        device, down=down[tier], up=up[tier], chunk=data, came=self._chunk_came
                    )
                say(event="plain")
            case {"do": "federate"}:
                for device in self._devices:
                    device.plain = None
                say(event="federate")
            case {"do": "counts"}:
                lost = sum(device.client.lost is not None for device in self._devices)
                say(event="counts", counts=self._place.counts, lost=lost, memory=rss())
                self._place.counts.clear()
            case {"do": "leave"}:
                for device in self._devices:
                    device.client.close()
                self._devices.clear()
                say(event="left")

    async def _join(self, numbers: list[int]) -> None:
        """Connect at most `AT_ONCE` devices at a time, which the broker's backlog can hold."""
        loop = asyncio.get_running_loop()
        wanted = len(self._devices) + len(numbers)
        for at in range(0, len(numbers), AT_ONCE):
            fresh = [Device(self._place, number) for number in numbers[at : at + AT_ONCE]]
            await asyncio.gather(
                *(
                    loop.create_connection(lambda device=device: device.client, self._host, self._port)
                    for device in fresh
                )
            )
            self._devices += fresh
            await asyncio.gather(*(device.client.settled.wait() for device in fresh))
        assert len(self._devices) == wanted

    async def _tick(self) -> None:
        pinged = time.monotonic()
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            for device in self._devices:
                device.tick(now)
            if now > pinged + KEEP_ALIVE_S / 2:
                pinged = now
                for device in self._devices:
                    device.client.ping()

    def _chunk_came(self, topic: str) -> None:
        """In the floor: report when all devices here that receive this topic have one more chunk."""
        self._came[topic] += 1
        layer = int(topic.rpartition("/")[2])
        if self._came[topic] % sum(device.tier >= layer for device in self._devices) == 0:
            say(event="came", layer=layer)


def say(**fields: Any) -> None:
    """Print an event for the parent process as a line of JSON."""
    print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="edge-bench-") as folder:
        asyncio.run(Process(sys.argv[1], int(sys.argv[2]), sys.argv[3], Path(folder)).run())
