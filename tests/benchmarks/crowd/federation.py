"""The real server in a process of its own, with a word to its parent whenever a round is closed.

    python -m tests.benchmarks.crowd.federation URL RUN_FOLDER key=value ...

It is `Server` as `edge-server run` makes it; beside the bytes of MQTT payloads, which it counts itself, the
kernel's counts of its socket are told.
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

from edge_client.transport.broker_address import parse_address
from edge_server.config.load import load_config
from edge_server.coordinator import launch
from edge_server.coordinator.jobs import JobDone
from edge_server.coordinator.server import Server, Suspended
from edge_server.observability.snapshot import Snapshot
from tests.benchmarks.resident import peak_rss

ACKED_AT, RECEIVED_AT = 120, 128
"""Where Linux has, in `struct tcp_info`, the bytes that the peer acknowledged, and those received."""


class Counting:
    """Shows nothing, but says how many devices are there."""

    def __init__(self) -> None:
        self._there = -1

    def show(self, snapshot: Snapshot) -> None:
        """Say it whenever it is another number."""
        there = sum(device.state != "offline" for device in snapshot.devices)
        if there != self._there and not snapshot.no_link:
            self._there = there
            say(event="there", devices=there)


class Told(Server):
    """Says what a round took as soon as it is closed."""

    def _handle(self, event: Any) -> None:
        super()._handle(event)
        if isinstance(event, JobDone) and event.record is not None:
            record = event.record
            reported = {
                "event": "closed",
                "round": record.round,
                "duration_s": record.duration_s,
                "completed": len(record.completed),
                "dropped": len(record.dropped),
                "rejected": [rejection.reason for rejection in record.rejected],
                "downlink": record.downlink_bytes,
                "uplink": record.uplink_bytes,
                "devices": len(self._driver.federation.fleet.alive()),
            }
            say(**reported, **_figures(self._connection.address.port))


def say(**what: Any) -> None:
    """Tell the parent."""
    print(json.dumps(what), flush=True)


def _figures(port: int) -> dict[str, Any]:
    sent, received = socket_bytes(port)
    return {
        "at": time.monotonic(),
        "sent": sent,
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
            with socket.socket(fileno=os.dup(int(entry.name))) as one:
                if one.family == socket.AF_INET and one.getpeername()[1] == port:
                    info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
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
    launch.Server = Told  # type: ignore[misc]
    with contextlib.suppress(Suspended):
        summary = launch.serve(config, parse_address(url), Counting(), out=Path(out))
        say(event="ended", outcome=summary.outcome, detail=summary.detail)


if __name__ == "__main__":
    main()
