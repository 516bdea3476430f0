"""Connections are bounded in all, per address and by the process's descriptors."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from edge_client.system.bounded_listener import BoundedListener, counted_address

PATIENCE_S = 60


@pytest.fixture
def held() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def listening(held: ExitStack, **limits: int) -> BoundedListener:
    made = BoundedListener(socket.create_server(("127.0.0.1", 0)), **limits, shared=frozenset({"127.0.0.9"}))
    return held.enter_context(made)


def connected(listener: BoundedListener, held: ExitStack, source: str) -> socket.socket | None:
    """The server's side of a new connection; None for one that was refused."""
    to = listener.getsockname()
    other = held.enter_context(socket.create_connection(to, PATIENCE_S, source_address=(source, 0)))
    try:
        return held.enter_context(listener.accept()[0])
    except ConnectionAbortedError:
        assert other.recv(1) == b""
        return None


def test_an_address_and_all_together_have_so_many_connections(held: ExitStack) -> None:
    listener = listening(held, most=5, per_address=2)
    first = connected(listener, held, "127.0.0.1")
    assert first is not None
    assert connected(listener, held, "127.0.0.1")
    assert connected(listener, held, "127.0.0.1") is None
    # A proxy's address is that of many visitors.
    assert all(connected(listener, held, "127.0.0.9") for _ in range(3))
    assert connected(listener, held, "127.0.0.2") is None
    first.close()
    first.close()
    assert connected(listener, held, "127.0.0.2")
    assert connected(listener, held, "127.0.0.3") is None


def test_a_request_is_read_until_its_time_is_over(held: ExitStack) -> None:
    listener = listening(held, most=1, per_address=1)
    other = held.enter_context(socket.create_connection(listener.getsockname(), PATIENCE_S))
    accepted = held.enter_context(listener.accept()[0])
    other.sendall(b"ab")
    reader = held.enter_context(accepted.makefile("rb", buffering=0))
    assert reader.read(1) == b"a"
    accepted.read_by = 0.0  # type: ignore[attr-defined]
    with pytest.raises(TimeoutError, match="has not arrived in time"):
        reader.read(1)


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("testclient", "unknown"),
    ],
)
def test_a_customer_counts_as_one_address(address: str, counted: str) -> None:
    assert counted_address(address) == counted


SCRIPT = """
import os, resource, socket
from edge_client.system.bounded_listener import BoundedListener
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
listener = BoundedListener(socket.create_server(("127.0.0.1", 0)), most=500, per_address=500)
assert listener._most == 32
others = [socket.create_connection(listener.getsockname(), 60) for _ in range(2)]
taken = []
try:
    while True:
        taken.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
try:
    listener.accept()
except ConnectionAbortedError:
    assert others[0].recv(1) == b""
    os.close(taken.pop())
    listener.accept()[0].sendall(b"!")
    print(others[1].recv(1))
"""


def test_without_a_free_descriptor_a_connection_is_refused_and_later_ones_are_served() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60)
    assert done.stdout == "b'!'\n", done.stderr
    assert done.stderr.count("is refused: no descriptor is free") == 1
