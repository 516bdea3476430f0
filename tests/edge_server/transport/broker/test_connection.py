"""A connection of the embedded broker over a fake transport that is full after every write."""

import asyncio
from typing import Any

import pytest

from edge_server.transport.broker.broker import Broker
from edge_server.transport.broker.encoding import encode
from edge_server.transport.broker.packets import V311, Connect, PingReq, PingResp, Publish
from edge_server.transport.broker.server import Connection
from edge_server.transport.broker.session import Limits
from edge_server.transport.broker.wire import Code

MEGABYTE = 1 << 20


class FakeTransport(asyncio.Transport):
    """A socket that is full after every write."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes | memoryview] = []
        self.aborted = False
        self.protocol: Connection | None = None

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert (high, low) == (0, 0)

    def write(self, data: Any) -> None:
        self.written.append(data)
        if self.protocol:
            self.protocol.pause_writing()

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True


def feed(connection: Connection, data: bytes) -> None:
    while data:
        space = connection.get_buffer(-1)
        count = min(len(space), len(data))
        space[:count] = data[:count]
        connection.buffer_updated(count)
        data = data[count:]


@pytest.fixture
def transport() -> FakeTransport:
    return FakeTransport()


@pytest.fixture
def connection(transport: FakeTransport) -> Connection:
    return connected(transport, MEGABYTE)


def connected(transport: FakeTransport, bound: int) -> Connection:
    made = Connection(Broker(Limits(output_bytes=bound, packet_bytes=bound)))
    made.connection_made(transport)
    feed(made, encode(Connect(V311, "client"), V311))
    transport.written.clear()
    transport.protocol = made
    return made


def test_nothing_is_written_to_a_full_socket_until_it_is_writable(
    connection: Connection, transport: FakeTransport
) -> None:
    feed(connection, encode(PingReq(), V311) * 3)
    assert len(transport.written) == 1
    connection.resume_writing()
    connection.resume_writing()
    assert transport.written == [encode(PingResp(), V311)] * 3


def test_a_large_payload_is_written_in_slices_without_a_copy(
    connection: Connection, transport: FakeTransport
) -> None:
    payload = memoryview(bytes(700_000))
    connection.send(b"head", payload)
    while not connection.has_room or len(transport.written) < 4:
        connection.resume_writing()
    assert [len(part) for part in transport.written] == [4, 262_144, 262_144, 175_712]
    assert all(isinstance(part, memoryview) and part.obj is payload.obj for part in transport.written[1:])


def test_output_beyond_the_bound_is_reported_as_full_until_it_is_written(connection: Connection) -> None:
    connection.send(b"first")
    connection.send(b"", memoryview(bytes(MEGABYTE)))
    assert not connection.has_room
    for _ in range(5):
        connection.resume_writing()
    assert connection.has_room


def test_a_client_that_sends_and_never_reads_is_cut(transport: FakeTransport) -> None:
    connection = connected(transport, bound=30_000)
    # A ping's answer has two bytes, so this stays within twice the output's bound and one packet ...
    feed(connection, encode(PingReq(), V311) * 45_000)
    assert not transport.aborted
    # ... and these pings exceed it.
    feed(connection, encode(PingReq(), V311) * 10)
    assert transport.aborted


def test_a_client_in_the_middle_of_a_packet_is_cut_without_a_disconnect_packet(
    connection: Connection, transport: FakeTransport
) -> None:
    connection.send(b"half a packet")
    connection.close(Code.TAKEN_OVER)
    assert transport.aborted
    assert transport.written == [b"half a packet"]


def test_nothing_is_read_or_sent_after_the_end(connection: Connection, transport: FakeTransport) -> None:
    connection.send(b"x")
    connection.close(Code.TAKEN_OVER)
    feed(connection, encode(Publish("t", bytes(9000)), V311) + b"\xff" * 9000)
    connection.send(b"y")
    assert transport.written == [b"x"]
