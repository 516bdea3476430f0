"""What the broker needs to know of a client's connection, so that it needs no sockets itself."""

from __future__ import annotations

from typing import Protocol

from edge_server.transport.broker.session import Session
from edge_server.transport.broker.wire import Code


class ClientLink(Protocol):
    """A client's connection: times in seconds of the broker's clock, sizes in bytes.

    `accepted` once CONNECT was answered with success; `session` only while the client counts as online.
    """

    peer: str
    version: int
    accepted: bool
    session: Session | None
    opened_at: float
    heard_at: float
    patience_s: float
    largest_packet: int
    dropped: int

    @property
    def has_room(self) -> bool:
        """Whether the unsent output is below its bound."""

    def send(self, head: bytes, payload: memoryview | None = None) -> None:
        """Send, or keep until the client reads."""

    def close(self, code: Code) -> None:
        """Tell the client why, where its version can, and end the connection; not if it is ending already."""
