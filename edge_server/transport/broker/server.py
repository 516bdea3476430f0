"""The asyncio server around a `Broker`: where it may listen, its one-second tick, its end."""

import asyncio
import contextlib
import ipaddress
import socket
from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import cast

from edge_server.transport.broker import decoding, encoding, wire
from edge_server.transport.broker.broker import Broker
from edge_server.transport.broker.session import Limits, Session
from schemas.errors import ConfigError

_BACKLOG = 1024
_TICK_S = 1.0


@contextlib.asynccontextmanager
async def serving(host: str, port: int, limits: Limits) -> AsyncIterator[tuple[str, int]]:
    """Run a broker while the context lasts; yields its address. Port 0 takes a free one."""
    address = _loopback(host, port)
    broker = Broker(limits)
    loop = asyncio.get_running_loop()
    try:
        server = await loop.create_server(lambda: Connection(broker), *address, backlog=_BACKLOG)
    except (OSError, OverflowError) as error:
        raise ConfigError(f"cannot listen on {host} port {port}: {error}") from error
    ticking = loop.create_task(_tick(broker))
    try:
        yield server.sockets[0].getsockname()[:2]
    finally:
        ticking.cancel()
        server.close()
        broker.shut_down()
        # One turn of the loop, in which the sockets take the farewells.
        await asyncio.sleep(0)


async def _tick(broker: Broker) -> None:
    while True:
        await asyncio.sleep(_TICK_S)
        broker.tick()


def _loopback(host: str, port: int) -> tuple[str, int]:
    """Return the address behind `host`; ConfigError unless only this machine can reach it."""
    try:
        found = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host} port {port}: {error}") from error
    address = str(found[0][4][0])
    if not ipaddress.ip_address(address).is_loopback:
        raise ConfigError(
            f"{host} can be reached from other machines, and this broker has neither TLS nor passwords",
            remedy="listen on 127.0.0.1, or use Mosquitto with deploy/mosquitto/mosquitto.conf",
        )
    return address, port


# Small packets are read into this buffer; the body of a larger one is read directly into a buffer of its own.
_SCRATCH_BYTES = 4096
# asyncio before 3.12 copies what the socket does not accept at once, so writes are limited to this size.
_SLICE_BYTES = 256 << 10
# A payload below this is joined with its head: one copy costs less than a second system call.
_JOIN_BYTES = 16 << 10
_LINGER_S = 1.0


class _PacketReader:
    """Received bytes, split into packets (first byte, body); MqttError for a packet above `packet_bytes`."""

    def __init__(self, packet_bytes: int) -> None:
        self._packet_bytes = packet_bytes
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._filled = 0
        self._first = 0
        self._body: memoryview | None = None

    def buffer(self) -> memoryview:
        target = self._scratch if self._body is None else self._body
        return target[self._filled :]

    def packets(self, count: int) -> Iterator[tuple[int, memoryview]]:
        """Take `count` new bytes; yields every packet that is complete now."""
        self._filled += count
        if self._body is None:
            yield from self._split()
        elif self._filled == len(self._body):
            body, self._body, self._filled = self._body, None, 0
            yield self._first, body

    def clear(self) -> None:
        """Forget what has been received of the next packet."""
        self._body, self._filled = None, 0

    def _split(self) -> Iterator[tuple[int, memoryview]]:
        """The packets in the scratch buffer; the beginning of the next one is kept."""
        start, end = 0, self._filled
        while frame := decoding.frame_length(self._scratch[start : min(start + 5, end)]):
            body_at, length = frame
            if body_at + length > self._packet_bytes:
                raise wire.MqttError(f"a packet of {body_at + length} bytes", wire.Code.TOO_LARGE)
            first, body_at = self._scratch[start], start + body_at
            if body_at + length > end:
                if body_at - start + length > _SCRATCH_BYTES:
                    self._expect_body(first, length, self._scratch[body_at:end])
                    return
                break
            start = body_at + length
            yield first, memoryview(bytes(self._scratch[body_at:start]))
        self._filled = end - start
        self._scratch[: self._filled] = bytes(self._scratch[start:end])

    def _expect_body(self, first: int, length: int, begun: memoryview) -> None:
        body = memoryview(bytearray(length))
        body[: len(begun)] = begun
        self._first, self._body, self._filled = first, body, len(begun)


class _Output:
    """Bytes that the socket has not accepted yet; `paused` while the socket is full."""

    def __init__(self) -> None:
        self.unsent = 0
        self.paused = False
        self._parts: deque[bytes | memoryview] = deque()

    def put(self, head: bytes, payload: memoryview | None) -> None:
        if payload is None:
            self._parts.append(head)
        elif len(payload) < _JOIN_BYTES:
            self._parts.append(b"".join((head, payload)))
        else:
            self._parts.append(head)
            self._parts.extend(payload[at : at + _SLICE_BYTES] for at in range(0, len(payload), _SLICE_BYTES))
        self.unsent += len(head) + (len(payload) if payload else 0)

    def flush(self, transport: asyncio.Transport) -> None:
        while self._parts and not self.paused and not transport.is_closing():
            part = self._parts.popleft()
            self.unsent -= len(part)
            transport.write(part)

    def clear(self) -> None:
        self._parts.clear()


class Connection(asyncio.BufferedProtocol):
    """A `ClientLink` over an asyncio transport, which sets TCP_NODELAY itself."""

    def __init__(self, broker: Broker) -> None:
        self.peer = "?"
        self.version = 0
        self.accepted = False
        self.session: Session | None = None
        self.opened_at = self.heard_at = broker.clock()
        self.patience_s = float("inf")
        self.largest_packet = 1 << 28
        self.dropped = 0
        self._broker = broker
        self._limits = broker.limits
        self._reader = _PacketReader(broker.limits.packet_bytes)
        self._output = _Output()
        self._closing = False

    # --- the transport's calls ---
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admit the client, or drop it if there are too many."""
        self._transport = cast(asyncio.Transport, transport)
        # Both at 0, so that `paused` says exactly whether the socket is full.
        self._transport.set_write_buffer_limits(high=0, low=0)
        host, port, *_ = transport.get_extra_info("peername") or ("?", "?")
        self.peer = f"{host}:{port}"
        if not self._broker.admit_link(self):
            self._closing = True
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Handle every packet that is complete now; a client that sends anything else is disconnected."""
        self.heard_at = self._broker.clock()
        try:
            if not self._closing:
                self._receive(nbytes)
        except wire.MqttError as error:
            self._broker.on_failure(self, error)
        if self._closing:
            self._reader.clear()

    def eof_received(self) -> bool:
        """End the connection: the client sends no more and does not wait for what it has not read."""
        self._transport.abort()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._output.clear()
        self._reader.clear()
        self._broker.on_closed(self)

    def pause_writing(self) -> None:
        self._output.paused = True

    def resume_writing(self) -> None:
        self._output.paused = False
        self._output.flush(self._transport)
        self._broker.writable(self)

    # --- the broker's calls ---
    @property
    def has_room(self) -> bool:
        return not self._closing and self._output.unsent < self._limits.output_bytes

    def send(self, head: bytes, payload: memoryview | None = None) -> None:
        """Send, or queue until the client reads; a client that never reads is disconnected."""
        if self._closing:
            return
        self._output.put(head, payload)
        self._output.flush(self._transport)
        if self._output.unsent > 2 * self._limits.output_bytes + self._limits.packet_bytes:
            self._closing = True
            self._transport.abort()

    def close(self, code: wire.Code) -> None:
        """Send the client the reason, if its version has one, and end the connection once."""
        if self._closing:
            return
        self._closing = True
        if self._output.paused:
            # The client is not reading, and another packet is half sent.
            self._transport.abort()
        elif code is wire.Code.SUCCESS:
            self._transport.close()
        else:
            self._linger(encoding.farewell(code, self.version, accepted=self.accepted))

    def _linger(self, last_words: bytes) -> None:
        # Closing while the client still sends resets the connection, and the reset can overtake these bytes.
        if last_words:
            self._transport.write(last_words)
        with contextlib.suppress(OSError):
            self._transport.write_eof()
        asyncio.get_running_loop().call_later(_LINGER_S, self._transport.abort)

    def _receive(self, nbytes: int) -> None:
        for first, body in self._reader.packets(nbytes):
            self._broker.on_packet(self, decoding.decode(first, body, self.version))
            if self._closing:
                break
