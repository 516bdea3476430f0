"""A slow link as a TCP relay: one rate per direction that all connections share, and a delay.

The kernel of a benchmark's machine may lack netem, so the link is made here: each piece of bytes leaves when
those before it have left at the link's rate, and arrives after the delay. A connection with `BUFFER` bytes on
the way is not read further, as a router's queue would make TCP wait. TCP's own start on a long link, and its
headers, are not part of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass

PIECE, BUFFER = 4 * 1024, 128 * 1024


@dataclass
class Direction:
    """One direction of the link: bytes per second, the delay in seconds, and the bytes so far."""

    rate: float
    delay: float
    free_at: float = 0.0
    bytes: int = 0

    def departure(self, size: int, now: float) -> float:
        """When the next bytes have left."""
        self.free_at = max(now, self.free_at) + size / self.rate
        self.bytes += size
        return self.free_at


@dataclass
class SlowLink:
    """The relay: clients connect to `port`."""

    up: Direction
    down: Direction
    port: int = 0

    @property
    def bytes(self) -> int:
        """The bytes of both directions."""
        return self.up.bytes + self.down.bytes

    async def serve(self, host: str, port: int, ready: threading.Event, stop: asyncio.Event) -> None:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                far_reader, far_writer = await asyncio.open_connection(host, port, limit=PIECE)
            except OSError:
                writer.close()
                return
            ways = ((reader, far_writer, self.up), (far_reader, writer, self.down))
            running = [asyncio.create_task(passed_on(*way)) for way in ways]
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in running:
                task.cancel()
            for end in (writer, far_writer):
                end.close()

        server = await asyncio.start_server(connected, "127.0.0.1", 0, limit=PIECE)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        async with server:
            await stop.wait()


async def passed_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Direction) -> None:
    """Pass the bytes of one connection on in one direction."""
    loop = asyncio.get_running_loop()
    coming: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(BUFFER // PIECE)

    async def arrive() -> None:
        while True:
            at, data = await coming.get()
            await asyncio.sleep(max(0.0, at - loop.time()))
            if not data:
                return
            writer.write(data)
            await writer.drain()

    async def leave() -> None:
        while data := await reader.read(PIECE):
            left = way.departure(len(data), loop.time())
            await coming.put((left + way.delay, data))
            # The next piece queues when this one has left: connections take turns.
            await asyncio.sleep(max(0.0, left - loop.time()))
        await coming.put((0.0, b""))

    with contextlib.suppress(ConnectionError, OSError):
        await asyncio.gather(leave(), arrive())


@contextlib.contextmanager
def slow_link(host: str, port: int, *, bits_per_s: float, round_trip_s: float) -> Iterator[SlowLink]:
    """A link to a server, for as long as the block."""
    directions = [Direction(bits_per_s / 8, round_trip_s / 2) for _ in range(2)]
    link, ready = SlowLink(*directions), threading.Event()
    loop, stop = asyncio.new_event_loop(), asyncio.Event()

    def run() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(link.serve(host, port, ready, stop))
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()

    thread = threading.Thread(target=run, name="slow-link", daemon=True)
    thread.start()
    ready.wait()
    try:
        yield link
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(5)
