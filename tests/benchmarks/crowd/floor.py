"""The floor: a round's bytes through the same broker to and from the same devices, and nothing else.

One publisher sends each of the model's layers once, at QoS 0, on a topic per layer, a few chunks ahead of the
slowest process of devices. A device that has received its part of the model answers with the same number of
bytes as in the federation, at QoS 1, in chunks of the same size. The number of devices that answer at the
same time is that of the federation, in order of their tiers, so that the broker's queue does not overflow.
One plain subscriber writes the answers to a file per device and does not wait for the disk. Nothing is
decoded, hashed, checked, planned, journaled or aggregated.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from edge_client.transport.chunk_transfer import WINDOW
from edge_server.rounds.machine import UPLOADING_BYTES
from schemas.tensors.chunks import CHUNK_BYTES
from schemas.topics import ROOT, Channel, DeviceTopic, parse_topic
from tests.benchmarks.crowd.device import device_name, plain_topic, tier_of
from tests.benchmarks.crowd.orders import Child, Crowd
from tests.benchmarks.crowd.wire import Arrived, Client

AT_ONCE, AHEAD = 32, 8


async def floor(
    devices: Crowd,
    address: tuple[str, int],
    federation: str,
    *,
    layers: Mapping[int, int],
    up: Mapping[int, int],
    chunk_bytes: int,
    folder: Path | None,
) -> float:
    """Run the floor and return its seconds; `layers`: bytes of each layer, `up`: bytes of a tier's answer."""
    down = {tier: sum(size for layer, size in layers.items() if layer <= tier) for tier in up}
    await devices.all_do("plain", "plain", down=down, up=up, chunk=chunk_bytes)
    with tempfile.TemporaryDirectory(prefix="edge-bench-", dir=folder) as place:
        receiver = Receiver(federation, range(devices.size), up, Path(place))
        await asyncio.get_running_loop().create_connection(lambda: receiver.client, *address)
        await receiver.ready.wait()
        began = time.perf_counter()
        receiver.begin()
        await _publish(receiver.client, devices, federation, layers, chunk_bytes)
        await receiver.done.wait()
        seconds = time.perf_counter() - began
        receiver.client.close()
    await devices.all_do("federate", "federate")
    return seconds


async def _publish(
    client: Client, devices: Crowd, federation: str, layers: Mapping[int, int], chunk_bytes: int
) -> None:
    """Send all chunks in order, at most `AHEAD` of them in flight to the slowest process."""
    chunk = os.urandom(chunk_bytes)
    came = asyncio.Semaphore(AHEAD)
    slowest = _Slowest(len(devices.children), came)
    listening = [
        asyncio.ensure_future(_listen(child, index, slowest)) for index, child in enumerate(devices.children)
    ]
    for layer, size in layers.items():
        for at in range(0, size, chunk_bytes):
            await came.acquire()
            client.publish(plain_topic(federation, layer), chunk[: min(chunk_bytes, size - at)], qos=0)
    for _ in range(AHEAD):
        await came.acquire()
    for task in listening:
        task.cancel()
    # A task that has not ended would consume its process's next line.
    await asyncio.wait(listening)


class _Slowest:
    """Releases one more chunk when the slowest process has reported one."""

    def __init__(self, processes: int, chunks: asyncio.Semaphore) -> None:
        self._counts, self._chunks = [0] * processes, chunks

    def reported(self, process: int) -> None:
        before = min(self._counts)
        self._counts[process] += 1
        if min(self._counts) > before:
            self._chunks.release()


async def _listen(child: Child, index: int, slowest: _Slowest) -> None:
    while True:
        await child.hear("came")
        slowest.reported(index)


class Receiver:
    """Gives devices their turn to answer, and writes the answers to files."""

    def __init__(self, federation: str, numbers: range, up: Mapping[int, int], folder: Path) -> None:
        self._federation, self._folder = federation, folder
        self._turns = sorted(numbers, key=tier_of, reverse=True)
        self._left = {device_name(number): up[tier_of(number)] for number in numbers}
        self._at_once = max(1, min(AT_ONCE, UPLOADING_BYTES // min(max(up.values()), WINDOW * CHUNK_BYTES)))
        self._files: dict[str, int] = {}
        self.ready, self.done = asyncio.Event(), asyncio.Event()
        self.client = Client(
            f"{federation}-plain",
            (f"{ROOT}/{federation}/devices/+/{Channel.UP_BLOB}",),
            on_message=self._arrived,
            on_ready=self.ready.set,
        )

    def begin(self) -> None:
        """Give the first devices their turn."""
        for _ in range(self._at_once):
            self._next()

    def _next(self) -> None:
        if self._turns:
            device = device_name(self._turns.pop())
            self.client.publish(str(DeviceTopic(self._federation, device, Channel.DOWN)), b"go")

    def _arrived(self, arrived: Arrived) -> None:
        where = parse_topic(arrived.topic)
        assert isinstance(where, DeviceTopic)
        device = where.device
        if device not in self._files:
            self._files[device] = os.open(self._folder / device, os.O_CREAT | os.O_WRONLY, 0o600)
        os.write(self._files[device], memoryview(arrived.data)[arrived.start : arrived.stop])
        self._left[device] -= arrived.stop - arrived.start
        if self._left[device] == 0:
            del self._left[device]
            os.close(self._files[device])
            self._next()
            if not self._left:
                self.done.set()
