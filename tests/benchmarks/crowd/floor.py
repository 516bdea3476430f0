"""The floor: a round's bytes through the same broker to and from the same devices, and nothing else.

One publisher sends the model's layers once each, at QoS 0, on a topic per layer, a few chunks ahead of the
slowest process of devices. A device has its part of the model when its bytes have come, and answers with as
many bytes as it does in the federation, at QoS 1, in chunks of the same size. As many devices answer at the
same time as the federation lets, in order of their tiers, lest the broker's queue overflow. One plain
subscriber writes what comes to a file per device and does not wait for the disk. No message is decoded, no
hash or checksum is taken, nothing is looked at, planned, journaled or aggregated.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from edge_client.transport.chunk_transfer import WINDOW
from edge_server.rounds.machine import UPLOADING_BYTES
from schemas.tensors.blobs import CHUNK_BYTES
from schemas.topics import ROOT, Channel, DeviceTopic, parse_topic
from tests.benchmarks.crowd.device import device_name, plain_topic, tier_of
from tests.benchmarks.crowd.orders import Child, Crowd
from tests.benchmarks.crowd.wire import Arrived, Client

AT_ONCE, AHEAD = 32, 8


async def floor(
    people: Crowd,
    address: tuple[str, int],
    federation: str,
    *,
    layers: Mapping[int, int],
    up: Mapping[int, int],
    chunk_bytes: int,
    folder: Path | None,
) -> float:
    """Seconds that it takes: `layers` are the bytes of each layer, `up` those of a tier's answer."""
    down = {tier: sum(size for layer, size in layers.items() if layer <= tier) for tier in up}
    await people.all_do("plain", "plain", down=down, up=up, chunk=chunk_bytes)
    with tempfile.TemporaryDirectory(prefix="edge-bench-", dir=folder) as place:
        receiver = Receiver(federation, range(people.size), up, Path(place))
        await asyncio.get_running_loop().create_connection(lambda: receiver.client, *address)
        await receiver.ready.wait()
        began = time.perf_counter()
        receiver.begin()
        await _publish(receiver.client, people, federation, layers, chunk_bytes)
        await receiver.done.wait()
        seconds = time.perf_counter() - began
        receiver.client.close()
    await people.all_do("federate", "federate")
    return seconds


async def _publish(
    client: Client, people: Crowd, federation: str, layers: Mapping[int, int], chunk_bytes: int
) -> None:
    """All chunks in order, no more than `AHEAD` of them on their way to the slowest process."""
    chunk = os.urandom(chunk_bytes)
    came = asyncio.Semaphore(AHEAD)
    slowest = _Slowest(len(people.children), came)
    listening = [
        asyncio.ensure_future(_listen(child, index, slowest)) for index, child in enumerate(people.children)
    ]
    for layer, size in layers.items():
        for at in range(0, size, chunk_bytes):
            await came.acquire()
            client.publish(plain_topic(federation, layer), chunk[: min(chunk_bytes, size - at)], qos=0)
    for _ in range(AHEAD):
        await came.acquire()
    for task in listening:
        task.cancel()
    # Until a task has ended it still waits for its process's next line, which others want to read.
    await asyncio.wait(listening)


class _Slowest:
    """Lets one more chunk go when the last process has told of one."""

    def __init__(self, processes: int, room: asyncio.Semaphore) -> None:
        self._counts, self._room = [0] * processes, room

    def reported(self, process: int) -> None:
        before = min(self._counts)
        self._counts[process] += 1
        if min(self._counts) > before:
            self._room.release()


async def _listen(one: Child, index: int, slowest: _Slowest) -> None:
    while True:
        await one.hear("came")
        slowest.reported(index)


class Receiver:
    """Whose turn it is to answer, and the files of what has come."""

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
        """The first devices have their turn."""
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
