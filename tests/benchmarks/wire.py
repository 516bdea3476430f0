"""A relay on loopback that counts the bytes of connections without reading them."""

import bisect
import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator

PIECE = 1 << 20


class Relay:
    """Relays every connection to `target`; `splice` moves pages in the kernel at almost no cost.

    `towards` counts bytes to the target, `back` bytes from the target.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.towards, self.back = Count(), Count()
        threading.Thread(target=self._accept, name="relay", daemon=True).start()

    def close(self) -> None:
        """Accept no more connections."""
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection(self._target)
                except OSError:
                    near.close()
                    continue
                for end in (near, far):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for source, sink, count in ((near, far, self.towards), (far, near, self.back)):
                    threading.Thread(target=_pass_on, args=(source, sink, count), daemon=True).start()


class Count:
    """The number of bytes so far, and the times of their transfer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._times, self._totals = [0.0], [0]

    def add(self, size: int) -> None:
        """Count `size` more bytes."""
        with self._lock:
            self._times.append(time.time())
            self._totals.append(self._totals[-1] + size)

    @property
    def total(self) -> int:
        """Bytes so far."""
        return self._totals[-1]

    def between(self, begin: float, end: float) -> int:
        """Bytes transferred between two times (seconds since 1970)."""
        with self._lock:
            first, last = (bisect.bisect_right(self._times, at) - 1 for at in (begin, end))
            return self._totals[last] - self._totals[first]


@contextlib.contextmanager
def relay(target: tuple[str, int]) -> Iterator[Relay]:
    """Run a relay to `target` for the duration of the block."""
    running = Relay(target)
    try:
        yield running
    finally:
        running.close()


def _pass_on(source: socket.socket, sink: socket.socket, count: Count) -> None:
    out, into = os.pipe()
    try:
        while moved := os.splice(source.fileno(), into, PIECE):
            count.add(moved)
            while moved:
                moved -= os.splice(out, sink.fileno(), moved)
    except OSError:
        pass
    finally:
        os.close(out)
        os.close(into)
        for writer in (source, sink):
            with contextlib.suppress(OSError):
                writer.shutdown(socket.SHUT_RDWR)
