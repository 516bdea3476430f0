"""TCP relays to the broker whose connections a test can cut, or let stand still."""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any

HOST = "127.0.0.1"


class Links:
    """One relay per device, all in one thread."""

    def __init__(self, broker_port: int) -> None:
        self._broker_port = broker_port
        self._loop = asyncio.new_event_loop()
        self._servers: list[asyncio.Server] = []
        self._open: dict[str, set[asyncio.StreamWriter]] = {}
        self._flowing: dict[str, asyncio.Event] = {}
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._thread.start()

    def port(self, device: str) -> int:
        """Start a relay for the device; returns its port."""
        return self._do(self._listen(device))

    def cut(self, device: str) -> None:
        """Reset every connection of the device."""
        self._do(self._cut(device))

    def stall(self, device: str) -> None:
        """Pass nothing on, in either direction, until `resume`; connections stay open."""
        self._do(self._stall(device, stalled=True))

    def resume(self, device: str) -> None:
        """Pass everything on again, what has waited first."""
        self._do(self._stall(device, stalled=False))

    def close(self) -> None:
        """End all relays."""
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(timeout=30)

    async def _listen(self, device: str) -> int:
        self._open[device] = set()
        self._flowing[device] = asyncio.Event()
        self._flowing[device].set()
        server = await asyncio.start_server(
            lambda reader, writer: self._relay(device, reader, writer), HOST, 0
        )
        self._servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def _stall(self, device: str, *, stalled: bool) -> None:
        (self._flowing[device].clear if stalled else self._flowing[device].set)()

    async def _cut(self, device: str) -> None:
        for writer in list(self._open[device]):
            writer.transport.abort()

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        for flowing in self._flowing.values():
            flowing.set()
        while relays := asyncio.all_tasks() - {asyncio.current_task()}:
            # Again, since a relay may just be opening its second connection.
            for device in self._open:
                await self._cut(device)
            await asyncio.wait(relays, timeout=0.1)

    async def _relay(self, device: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await asyncio.open_connection(HOST, self._broker_port)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, up_writer}
        self._open[device] |= ends
        flowing = self._flowing[device]
        await asyncio.gather(_pump(reader, up_writer, flowing), _pump(up_reader, writer, flowing))
        self._open[device] -= ends


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter, flowing: asyncio.Event) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(65536):
            await flowing.wait()
            target.write(data)
            await target.drain()
    target.transport.abort()
