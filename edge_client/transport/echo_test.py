"""Runs the state machine of `packet_size` on a connection: publishes its payloads and receives the echoes."""

import os
from collections.abc import Callable

from edge_client.transport import packet_size
from edge_client.transport.link_events import LinkUp
from edge_client.transport.packet_size import Sizing

Publish = Callable[[bytes], None]
"""At QoS 0: a packet for which the broker closes the connection must not be sent again on the next one."""
_NAME_BYTES = 8


class EchoTest:
    """Measures once per process how large packets may be; raises `ConfigError` if no chunk size fits."""

    def __init__(self, topic: str, publish: Publish) -> None:
        self.topic, self._publish = topic, publish
        self._name = os.urandom(_NAME_BYTES)
        self._sizing: Sizing | None = None

    @property
    def chunk_bytes(self) -> int | None:
        """The chunk size that works, in bytes; None while unknown."""
        return None if self._sizing is None else self._sizing.found

    @property
    def is_measured(self) -> bool:
        """Whether a message of that size came back."""
        return self._sizing is not None and self._sizing.measured

    def on_connected(self, up: LinkUp, now: float) -> None:
        """Begin or continue on a new connection; a size already found is kept if it fits."""
        before = self._sizing
        if before is None:
            self._advance(packet_size.begin(up.max_packet, now))
        elif before.found is None:
            self._advance(packet_size.again(before, up.max_packet, now))
        elif before.found not in packet_size.fitting(up.max_packet):
            self._advance(packet_size.begin(up.max_packet, now))

    def cut(self) -> None:
        if self._sizing is not None:
            self._sizing = packet_size.cut(self._sizing)

    def receive(self, topic: str, payload: bytes, now: float) -> bool:
        """Process a message; returns whether it came on the test's topic."""
        if topic != self.topic:
            return False
        if self._sizing is not None and payload.startswith(self._name):
            self._advance(packet_size.on_echo(self._sizing, len(payload), now))
        return True

    def tick(self, now: float) -> None:
        if self._sizing is not None:
            self._advance(packet_size.overdue(self._sizing, now))

    def _advance(self, sizing: Sizing) -> None:
        before, self._sizing = self._sizing, sizing
        asked = None if before is None else (before.payload_bytes, before.until)
        if sizing.payload_bytes is not None and (sizing.payload_bytes, sizing.until) != asked:
            self._publish(self._name + bytes(sizing.payload_bytes - _NAME_BYTES))
