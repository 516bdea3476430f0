"""The real server in its own process, which reports every closed round to its parent.

    python -m tests.benchmarks.crowd.federation URL RUN_FOLDER key=value ...

It is the `Server` of `edge-server run`. In addition to the bytes of MQTT payloads, which the server counts,
the kernel's counts of its socket are reported.
"""

import contextlib
import json
import logging
import os
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any

from edge_client.transport.broker_link import parse_address
from edge_server.config.load import load_config
from edge_server.coordinator import launch, server
from edge_server.coordinator.jobs import JobDone
from edge_server.coordinator.round_record import RoundFigures
from edge_server.coordinator.server import Server
from edge_server.coordinator.standby.writing_right import Suspended
from edge_server.observability.snapshot import Snapshot
from edge_server.rounds.events import CloseRound, RoundClosed
from tests.benchmarks.resident import peak_rss

ACKED_AT, RECEIVED_AT = 120, 128
"""Offsets of acknowledged and received bytes in Linux's `struct tcp_info`."""


class Counting:
    """Reports the number of connected devices."""

    def __init__(self) -> None:
        self._connected = -1

    def show(self, snapshot: Snapshot) -> None:
        """Report the number when it has changed."""
        connected = sum(device.state != "offline" for device in snapshot.devices)
        if connected != self._connected and not snapshot.no_link:
            self._connected = connected
            say(event="there", devices=connected)


class ReportingServer(Server):
    """Reports the cost of each round when the round is closed.

    The bytes sent before the connection's echo test ended are left out: the server sends them once per start.
    """

    _sent_before: int | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._closing: dict[int, dict[str, Any]] = {}
        self._take, self.loop.handle = self.loop.handle, self._take_and_report
        self._close_round, self.jobs.close_round = self.jobs.close_round, self._note  # type: ignore[method-assign]

    def _note(self, command: CloseRound, figures: RoundFigures) -> None:
        self._closing[command.round] = {
            "event": "closed",
            "round": command.round,
            "duration_s": figures.duration_s,
            "completed": len(command.updates),
            "dropped": len(command.dropped),
            "rejected": [reason for reason, _ in command.rejected.values()],
            "downlink": figures.downlink,
            "uplink": figures.uplink,
        }
        self._close_round(command, figures)

    def _take_and_report(self, event: Any) -> None:
        self._take(event)
        port = self.connection.address.port
        if self._sent_before is None and self.connection.echo.chunk_bytes is not None:
            self._sent_before = socket_bytes(port)[0]
        if isinstance(event, JobDone) and isinstance(event.event, RoundClosed):
            devices = len(self.driver.federation.fleet.alive())
            reported = {**self._closing.pop(event.event.round), "devices": devices}
            say(**reported, **_figures(port, self._sent_before or 0))


def say(**fields: Any) -> None:
    """Print an event for the parent process as a line of JSON."""
    print(json.dumps(fields), flush=True)


def _figures(port: int, sent_before: int) -> dict[str, Any]:
    sent, received = socket_bytes(port)
    return {
        "at": time.monotonic(),
        "sent": sent - sent_before,
        "received": received,
        "peak_memory": peak_rss(),
        "cpu_s": time.process_time(),
    }


def socket_bytes(port: int) -> tuple[int, int]:
    """Bytes sent and received on this process's connections to `port`, as the kernel counts them."""
    sent = received = 0
    for entry in Path("/proc/self/fd").iterdir():
        try:
            if not str(entry.readlink()).startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(entry.name))) as connection:
                if connection.family == socket.AF_INET and connection.getpeername()[1] == port:
                    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                    sent += struct.unpack_from("=Q", info, ACKED_AT)[0]
                    received += struct.unpack_from("=Q", info, RECEIVED_AT)[0]
        except OSError:
            continue
    return sent, received


def main() -> None:
    """Serve one federation to its end."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    url, out, *overrides = sys.argv[1:]
    config = load_config("heterofl", overrides)
    # `launch` imports it when devices are being answered already.
    server.Server = ReportingServer  # type: ignore[misc]
    with contextlib.suppress(Suspended):
        summary = launch.serve(config, parse_address(url), Counting(), out=Path(out))
        say(event="ended", outcome=summary.outcome, detail=summary.detail)


if __name__ == "__main__":
    main()
