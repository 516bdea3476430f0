"""The interface of a client's connection; the broker itself uses no sockets."""

from typing import Protocol

from edge_server.transport.broker.session import Session
from edge_server.transport.broker.wire import Code


class ClientLink(Protocol):
    """A client's connection: times in seconds of the broker's clock, sizes in bytes.

    `accepted`: CONNECT was answered with success; `session` is set while the client is online.
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
        """Send, or queue until the client reads."""

    def close(self, code: Code) -> None:
        """Send the client the reason, if its version has one, and end the connection once."""
