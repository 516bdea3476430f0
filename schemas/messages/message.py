"""The base of all messages, and their size limits."""

from typing import ClassVar

from schemas.base import Frozen
from schemas.names import Name

PROTOCOL = 1
"""Version of the protocol that this program writes."""
PROTOCOL_RANGE = (1, 1)
MAX_MESSAGE_BYTES = 256 * 1024
"""Limit of the largest kinds, which may list channels one by one; the default is 4 kB."""


class Message(Frozen):
    """Base of all messages."""

    kind: str
    protocol: int = PROTOCOL
    federation: Name
    max_bytes: ClassVar[int] = 4 * 1024
