"""A light MQTT 5 connection: hundreds of them share a thread, a read buffer and received payloads.

A large payload is passed on in its buffer without a copy: the receiver reads it immediately.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from edge_server.transport.broker import decoding, encoding, packets

SCRATCH_BYTES = 512 * 1024
KEEP_ALIVE_S = 60
PUBLISH, PINGREQ = 3, b"\xc0\x00"
_scratch = bytearray(SCRATCH_BYTES)
"""Read buffer of all connections in turn; each connection stores the incomplete rest of its own input."""
_buffers: list[bytearray] = []
"""Buffers of handled packets, for reuse: allocating fresh memory costs more than filling it."""


@dataclass(frozen=True)
class Arrived:
    """A message: its payload is `data[start:stop]`; `data` may change as soon as the receiver returns."""

    topic: str
    data: bytearray
    start: int
    stop: int

    @property
    def payload(self) -> bytes:
        """A copy of the payload."""
        return bytes(memoryview(self.data)[self.start : self.stop])


class Client(asyncio.BufferedProtocol):
    """Connects, subscribes, then passes messages on; at most `window` QoS 1 messages are in flight.

    The connection is `settled` as soon as it is open or lost.
    """

    def __init__(
        self,
        client_id: str,
        filters: Sequence[str],
        *,
        on_message: Callable[[Arrived], None],
        on_ready: Callable[[], None],
        will: packets.Will | None = None,
        window: int = 16,
    ) -> None:
        self._client_id, self._filters, self._will = client_id, tuple(filters), will
        self._on_message, self._on_ready = on_message, on_ready
        self._body: bytearray | None = None
        self._first, self._length, self._filled = 0, 0, 0
        self._rest = b""
        self._listened: frozenset[str] = frozenset()
        self._waiting: deque[Callable[[], tuple[str, bytes, bytes | memoryview]]] = deque()
        self._under_way, self._window, self._last_id = 0, window, 0
        self.lost: Exception | None = None
        self.is_open, self.settled = False, asyncio.Event()

    # --- the transport's calls ---
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the CONNECT packet."""
        self._transport = cast(asyncio.Transport, transport)
        connect = packets.Connect(packets.V5, self._client_id, keep_alive=KEEP_ALIVE_S, will=self._will)
        self._write(encoding.encode(connect, packets.V5))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Read the rest of a large packet directly into its buffer, anything else into the shared buffer."""
        if self._body is not None:
            return memoryview(self._body)[self._filled : self._length]
        return memoryview(_scratch)

    def buffer_updated(self, nbytes: int) -> None:
        """Handle every complete packet."""
        if self._body is None:
            self._parse(nbytes)
            return
        self._filled += nbytes
        if self._filled == self._length:
            body, self._body = self._body, None
            self._received(self._first, body, 0, self._length)
            _buffers.append(body)

    def connection_lost(self, exc: Exception | None) -> None:
        """Store the reason."""
        self._lost(exc or ConnectionError("closed"))

    # --- the owner's calls ---
    def publish(
        self,
        topic: str,
        payload: bytes,
        more: bytes | memoryview = b"",
        *,
        qos: int = 1,
        retain: bool = False,
    ) -> None:
        """Publish at once; `more` is the payload's second part."""
        packet_id = self._next_id() if qos else 0
        if qos:
            self._under_way += 1
        size = len(payload) + len(more)
        block = b"\x00"
        head = encoding.publish_head(
            topic.encode(), size, qos=qos, retain=retain, dup=False, packet_id=packet_id, block=block
        )
        self._write(head + payload if not more else b"".join((head, payload, more)))

    def publish_later(self, make: Callable[[], tuple[str, bytes, bytes | memoryview]]) -> None:
        """Publish at QoS 1 as soon as the window permits; `make` returns topic and payload parts."""
        self._waiting.append(make)
        self._pump()

    def listen(self, topics: frozenset[str]) -> None:
        """Subscribe to exactly these topics, at QoS 0, in addition to the filters, as `Link` does."""
        if topics and topics <= self._listened:
            return
        before, self._listened = self._listened, topics
        if gone := before - topics:
            self._write(
                encoding.encode(packets.Unsubscribe(self._next_id(), tuple(sorted(gone))), packets.V5)
            )
        if new := topics - before:
            filters = tuple(packets.Filter(topic, 0) for topic in sorted(new))
            self._write(encoding.encode(packets.Subscribe(self._next_id(), filters), packets.V5))

    def ping(self) -> None:
        """Send a PINGREQ."""
        self._write(PINGREQ)

    def close(self) -> None:
        """Close without DISCONNECT: the broker publishes the will."""
        self._transport.abort()

    # --- internals ---
    def _lost(self, why: Exception) -> None:
        self.is_open, self.lost = False, why
        self.settled.set()

    def _write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    def _pump(self) -> None:
        while self._waiting and self._under_way < self._window:
            topic, head, data = self._waiting.popleft()()
            self.publish(topic, head, data)

    def _next_id(self) -> int:
        self._last_id = self._last_id % 0xFFFF + 1
        return self._last_id

    def _parse(self, nbytes: int) -> None:
        data, end = _scratch, nbytes
        if self._rest:
            data = bytearray(self._rest) + memoryview(_scratch)[:nbytes]
            end, self._rest = len(data), b""
        at = 0
        while frame := decoding.frame_length(memoryview(data)[at : min(at + 5, end)]):
            offset, length = frame
            begin = at + offset
            if begin + length > end:
                if length > 4096:
                    self._expect(data[at], length, memoryview(data)[begin:end])
                    return
                break
            self._received(data[at], data, begin, begin + length)
            at = begin + length
        self._rest = bytes(memoryview(data)[at:end])

    def _expect(self, first: int, length: int, begun: memoryview) -> None:
        body = _buffers.pop() if _buffers else bytearray(SCRATCH_BYTES)
        if len(body) < length:
            body = bytearray(length)
        body[: len(begun)] = begun
        self._first, self._body, self._length, self._filled = first, body, length, len(begun)

    def _received(self, first: int, data: bytearray, start: int, stop: int) -> None:
        if first >> 4 == PUBLISH:
            self._take(first, data, start, stop)
            return
        self._answered(decoding.decode(first, memoryview(bytes(memoryview(data)[start:stop])), packets.V5))

    def _take(self, first: int, data: bytearray, start: int, stop: int) -> None:
        at = start + 2 + int.from_bytes(data[start : start + 2], "big")
        topic = data[start + 2 : at].decode()
        acknowledgement = b""
        if first & 6:
            acknowledgement = b"\x40\x02" + data[at : at + 2]
            at += 2
        # Assumes less than 128 bytes of properties: this protocol has none, and brokers add few.
        at += 1 + data[at]
        self._on_message(Arrived(topic, data, at, stop))
        if acknowledgement:
            self._write(acknowledgement)

    def _answered(self, packet: packets.Packet) -> None:
        match packet:
            case packets.ConnAck(code=0):
                filters = tuple(packets.Filter(topic, 1) for topic in self._filters)
                self._write(encoding.encode(packets.Subscribe(self._next_id(), filters), packets.V5))
            case packets.ConnAck(code=code):
                self._lost(ConnectionError(f"refused with {code:#x}"))
            case packets.SubAck() if not self.is_open:
                self.is_open = True
                self.settled.set()
                self._on_ready()
            case packets.PubAck():
                self._under_way -= 1
                self._pump()
            case _:
                pass
