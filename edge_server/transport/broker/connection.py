"""One client's socket: bytes into packets, packets into bytes, and a bound on what it has not read."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import cast

from edge_server.transport.broker import decoding, encoding
from edge_server.transport.broker.broker import Broker
from edge_server.transport.broker.session import Session
from edge_server.transport.broker.wire import Code, MqttError

# Small packets are read into this; a larger one's body goes from the socket straight into its own buffer.
_SCRATCH_BYTES = 4096
# asyncio before 3.12 copies what the socket does not take at once, so it gets no more than this at a time.
_SLICE_BYTES = 256 << 10
# A payload below this is joined with its head: one copy costs less than a second system call.
_JOIN_BYTES = 16 << 10
_LINGER_S = 1.0


class Connection(asyncio.BufferedProtocol):
    """A `Link` over an asyncio transport, which has TCP_NODELAY on by itself."""

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
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._filled = 0
        self._first = 0
        self._body: memoryview | None = None
        self._out: deque[bytes | memoryview] = deque()
        self._unsent = 0
        self._paused = False
        self._closing = False

    # --- the transport's calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admit the client, or drop it where there are too many."""
        self._transport = cast(asyncio.Transport, transport)
        # Both at 0: `_paused` then says exactly whether the socket is full.
        self._transport.set_write_buffer_limits(high=0, low=0)
        host, port, *_ = transport.get_extra_info("peername") or ("?", "?")
        self.peer = f"{host}:{port}"
        if not self._broker.opened(self):
            self._closing = True
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Say where the next bytes go."""
        target = self._scratch if self._body is None else self._body
        return target[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Act on every packet that is complete now; a client that sends anything else is sent away."""
        self.heard_at = self._broker.clock()
        self._filled += nbytes
        try:
            if self._body is None:
                self._parse()
            elif self._filled == len(self._body):
                body, self._body, self._filled = self._body, None, 0
                self._receive(self._first, body)
        except MqttError as error:
            self._broker.failed(self, error)
        if self._closing:
            self._body, self._filled = None, 0

    def eof_received(self) -> bool:
        """The client will send no more; what it has not read by now, it does not wait for."""
        self._transport.abort()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Release what the connection held."""
        self._closing = True
        self._out.clear()
        self._body = None
        self._broker.closed(self)

    def pause_writing(self) -> None:
        """The socket is full."""
        self._paused = True

    def resume_writing(self) -> None:
        """The socket takes more."""
        self._paused = False
        self._flush()
        self._broker.writable(self)

    # --- the broker's calls ---

    @property
    def has_room(self) -> bool:
        """Whether the unsent output is below its bound."""
        return not self._closing and self._unsent < self._limits.output_bytes

    def send(self, head: bytes, payload: memoryview | None = None) -> None:
        """Send, or keep until the client reads; a client that never reads its answers is cut."""
        if self._closing:
            return
        if payload is None:
            self._out.append(head)
        elif len(payload) < _JOIN_BYTES:
            self._out.append(b"".join((head, payload)))
        else:
            self._out.append(head)
            self._out.extend(payload[at : at + _SLICE_BYTES] for at in range(0, len(payload), _SLICE_BYTES))
        self._unsent += len(head) + (len(payload) if payload else 0)
        self._flush()
        if self._unsent > 2 * self._limits.output_bytes + self._limits.packet_bytes:
            self._closing = True
            self._transport.abort()

    def close(self, code: Code) -> None:
        """Tell the client why, where its version can, and end the connection; not if it is ending already."""
        if self._closing:
            return
        self._closing = True
        if self._paused:
            # It is in the middle of another packet, which it does not read.
            self._transport.abort()
        elif code is Code.SUCCESS:
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

    # --- inside ---

    def _flush(self) -> None:
        while self._out and not self._paused and not self._transport.is_closing():
            part = self._out.popleft()
            self._unsent -= len(part)
            self._transport.write(part)

    def _parse(self) -> None:
        """Act on the packets in the scratch buffer, and keep the beginning of the next one."""
        start, end = 0, self._filled
        while not self._closing and (
            frame := decoding.frame_length(self._scratch[start : min(start + 5, end)])
        ):
            body_at, length = frame
            if body_at + length > self._limits.packet_bytes:
                raise MqttError(f"a packet of {body_at + length} bytes", Code.TOO_LARGE)
            first, body_at = self._scratch[start], start + body_at
            if body_at + length > end:
                if body_at - start + length > _SCRATCH_BYTES:
                    self._expect_body(first, length, self._scratch[body_at:end])
                    return
                break
            start = body_at + length
            self._receive(first, memoryview(bytes(self._scratch[body_at:start])))
        self._filled = end - start
        self._scratch[: self._filled] = bytes(self._scratch[start:end])

    def _expect_body(self, first: int, length: int, begun: memoryview) -> None:
        body = memoryview(bytearray(length))
        body[: len(begun)] = begun
        self._first, self._body, self._filled = first, body, len(begun)

    def _receive(self, first: int, body: memoryview) -> None:
        if not self._closing:
            self._broker.received(self, decoding.decode(first, body, self.version))
