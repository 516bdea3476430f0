"""The server's receiver processes: starts them, tells them which blobs to expect, replaces dead ones.

Each has a thread that reads its messages into the server's inbox, and one that writes to it, so that a
receiver that hangs delays nothing else.
"""

import contextlib
import json
import logging
import queue
import secrets
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge_client.transport.broker_link import BrokerAddress, Inbox
from edge_server.transport.receivers.messages import Expect, ReceiverMessage, decode_line, encode_line
from schemas.base import fields_of
from schemas.errors import ConfigError
from schemas.tensors.chunks import BlobRef

log = logging.getLogger(__name__)

END_S, PAUSE_S = 5.0, 1.0


@dataclass(frozen=True)
class FromReceiver:
    """Event: a message of a receiver."""

    message: ReceiverMessage


@dataclass(frozen=True)
class ReceiverLost:
    """Event: receiver `number` has ended unexpectedly."""

    number: int


class ReceiverPool:
    """The receivers of one federation; call all methods from the server's thread."""

    def __init__(
        self, count: int, federation: str, address: BrokerAddress, folder: Path, inbox: Inbox
    ) -> None:
        if count and address.tls is not None and address.tls.certificate is not None:
            raise ConfigError(
                "a certificate is one client's, and each receiver is a client of its own",
                key="[federation] receivers",
                remedy="leave receivers at 0, or let the server log in with a password "
                "(mqtts://user:password@...)",
            )
        self._count, self._federation, self._address = count, federation, address
        self._folder, self._inbox = folder, inbox
        self._group = secrets.token_hex(16)
        self._expected: dict[str, Expect] = {}
        self._running: dict[int, _Process] = {}

    def __len__(self) -> int:
        return self._count

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(process.pid for process in self._running.values())

    def open(self) -> None:
        for number in range(self._count):
            self._start(number)

    def expect(self, device: str, blob: BlobRef) -> None:
        """Tell all receivers that a device has claimed this blob."""
        if not self._count or (device in self._expected and self._expected[device].blob == blob):
            return
        self._expected[device] = message = Expect(device=device, blob=blob)
        for process in self._running.values():
            process.send(message)

    def replace(self, lost: ReceiverLost) -> None:
        """Replace a receiver that has died; chunks that it did not report are requested again."""
        log.warning("receiver %d has ended: starting another", lost.number)
        self._start(lost.number, pause_s=PAUSE_S)

    def close(self) -> None:
        for process in self._running.values():
            process.end()
        self._running.clear()

    def _start(self, number: int, *, pause_s: float = 0.0) -> None:
        settings = {
            "federation": self._federation,
            "group": self._group,
            "client_id": f"{self._federation}-receiver-{number}",
            "address": _as_json(self._address),
            "folder": str(self._folder),
        }
        self._running[number] = process = _Process(number, settings, self._inbox, pause_s)
        for message in self._expected.values():
            process.send(message)


class _Process:
    """One process and its two threads."""

    def __init__(self, number: int, settings: dict[str, Any], inbox: Inbox, pause_s: float) -> None:
        self._number, self._inbox = number, inbox
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._ending = threading.Event()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "edge_server.transport.receivers.process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.pid = self._process.pid
        self._outgoing.put(json.dumps(settings).encode() + b"\n")
        self._threads = [
            threading.Thread(target=target, args=args, name=f"receiver-{number}", daemon=True)
            for target, args in ((self._read, (pause_s,)), (self._write, ()))
        ]
        for thread in self._threads:
            thread.start()

    def send(self, message: ReceiverMessage) -> None:
        self._outgoing.put(encode_line(message))

    def end(self) -> None:
        """End the process by closing its standard input."""
        self._ending.set()
        self._outgoing.put(None)
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for thread in self._threads:
            thread.join(END_S)

    def _read(self, pause_s: float) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                # A killed process may leave half a line.
                if line.endswith(b"\n"):
                    self._inbox.put(FromReceiver(decode_line(line)))
        self._outgoing.put(None)
        # Pause, so that a process that cannot start is not restarted in a tight loop.
        if not self._ending.wait(pause_s):
            self._process.wait()
            self._inbox.put(ReceiverLost(self._number))

    def _write(self) -> None:
        assert self._process.stdin is not None
        # If the process has ended, the reading thread reports that.
        with contextlib.suppress(OSError), self._process.stdin as lines:
            while (line := self._outgoing.get()) is not None:
                lines.write(line)
                if self._outgoing.empty():
                    lines.flush()


def _as_json(address: BrokerAddress) -> dict[str, Any]:
    tls = address.tls and {
        name: path and str(path) for name, path in fields_of(address.tls, "ca", "certificate", "key").items()
    }
    return {**fields_of(address, "host", "port", "username", "password"), "tls": tls}
