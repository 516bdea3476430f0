"""A listening socket that bounds its connections, so that visitors cannot use up the process's descriptors.

Connections are counted from `accept` to `close`: one that has sent nothing, or is within a TLS handshake,
counts, too.
"""

import contextlib
import errno
import ipaddress
import logging
import os
import resource
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

log = logging.getLogger(__name__)

LOOPBACK = frozenset({"127.0.0.1", "::1"})
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class BoundedListener(socket.socket):
    """Takes the place of a listening socket; refused connections are closed at once.

    At most `most` connections are open, `per_address` of them from one address (IPv6: one /64) that is not
    `shared`, as that of a proxy is. At most half of the process's descriptors are used. `accept` raises
    `ConnectionAbortedError` for a connection that it has refused.
    """

    def __init__(
        self, listening: socket.socket, *, most: int, per_address: int, shared: frozenset[str] = LOOPBACK
    ) -> None:
        super().__init__(fileno=listening.detach())
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = most if soft == resource.RLIM_INFINITY else max(1, min(most, soft // 2))
        self._per_address, self._shared = per_address, shared
        self._open: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._reserve: int | None = os.open(os.devnull, os.O_RDONLY)

    def accept(self) -> tuple[socket.socket, Any]:
        try:
            accepted, address = super().accept()
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            self._refuse_next()
            raise ConnectionAbortedError from None
        if self._enters(counted := counted_address(address[0]), alone=address[0] not in self._shared):
            return AcceptedConnection(accepted, lambda: self._on_close(counted)), address
        accepted.close()
        _log_refusal(counted, "there are too many")
        raise ConnectionAbortedError

    def close(self) -> None:
        super().close()
        if self._reserve is not None:
            os.close(self._reserve)
            self._reserve = None

    def _enters(self, address: str, *, alone: bool) -> bool:
        with self._lock:
            full = self._open.total() >= self._most
            if full or (alone and self._open[address] >= self._per_address):
                return False
            self._open[address] += 1
            return True

    def _on_close(self, address: str) -> None:
        with self._lock:
            self._open[address] -= 1
            if not self._open[address]:
                del self._open[address]

    def _refuse_next(self) -> None:
        """Without free descriptors: close the connection that waits, by means of the one in reserve.

        It would stay at the front of the queue otherwise, and the loop that waits for it would not rest.
        """
        if self._reserve is not None:
            os.close(self._reserve)
            self._reserve = None
            with contextlib.suppress(OSError):
                super().accept()[0].close()
        with contextlib.suppress(OSError):
            self._reserve = os.open(os.devnull, os.O_RDONLY)
        _log_refusal("somewhere", "no descriptor is free: raise LimitNOFILE, or `ulimit -n`")


class AcceptedConnection(socket.socket):
    """A connection that calls `closed` when it closes.

    `read_by` bounds how long a request may take to arrive, in the time of `time.monotonic`: reading later
    raises `TimeoutError`, whatever has arrived meanwhile.
    """

    def __init__(self, accepted: socket.socket, closed: Callable[[], None]) -> None:
        super().__init__(fileno=accepted.detach())
        self._when_closed: Callable[[], None] | None = closed
        self.read_by: float | None = None

    def close(self) -> None:
        super().close()
        if self._when_closed is not None:
            closed, self._when_closed = self._when_closed, None
            closed()

    def recv_into(self, *args: Any) -> int:
        if self.read_by is not None and time.monotonic() > self.read_by:
            raise TimeoutError("the request has not arrived in time")
        return super().recv_into(*args)


def counted_address(address: str) -> str:
    """The address that connections and failures are counted for: of IPv6 the /64, which one customer has."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return "unknown"
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, 64), strict=False))


def _log_refusal(address: str, why: str) -> None:
    log.warning("a connection from %s is refused: %s", address, why, extra={"reason": "connections"})
