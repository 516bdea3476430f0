"""What every message states, and how large it may be."""

from __future__ import annotations

from typing import ClassVar

from schemas.base import Frozen
from schemas.names import Name

PROTOCOL = 1
"""The version that this program speaks; a message states the one it was written in."""
PROTOCOL_RANGE = (1, 1)
MAX_MESSAGE_BYTES = 256 * 1024
"""Of the largest kinds, which may list a channel by channel choice; others stay below 4 kB."""


class Message(Frozen):
    """Base of all messages."""

    kind: str
    protocol: int = PROTOCOL
    federation: Name
    max_bytes: ClassVar[int] = 4 * 1024
