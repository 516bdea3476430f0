"""Splits messages that exceed one packet of the broker into parts, and joins the parts.

A part begins with a magic number that neither JSON nor a chunk begins with. Blobs have chunks instead.
"""

import hashlib
import struct
from dataclasses import dataclass, field

from schemas.messages.message import MAX_MESSAGE_BYTES

_HEADER = struct.Struct("!2sBxII8s")
_MAGIC, _VERSION = b"EP", 1
PART_HEADER_BYTES = _HEADER.size
MAX_PARTS = 64
MAX_OPEN = 64  # Largest number of incomplete messages, one per topic; another one replaces the oldest


def split(payload: bytes, most: int | None) -> list[bytes]:
    """The payload, or its parts of at most `most` bytes if it is larger."""
    if most is None or len(payload) <= most:
        return [payload]
    room = most - PART_HEADER_BYTES
    parts = [payload[at : at + room] for at in range(0, len(payload), room)]
    name = hashlib.sha256(payload).digest()[:8]
    return [
        _HEADER.pack(_MAGIC, _VERSION, index, len(parts), name) + part for index, part in enumerate(parts)
    ]


@dataclass
class _Open:
    """An incomplete message."""

    name: bytes
    count: int
    parts: dict[int, bytes] = field(default_factory=dict)
    size: int = 0


class Parts:
    """Joins parts by topic; a new message on a topic replaces an incomplete one."""

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}

    def __len__(self) -> int:
        return len(self._open)

    def take(self, topic: str, payload: bytes) -> bytes | None:
        """The whole message once its last part has arrived; a payload that is no part is already whole."""
        if not payload.startswith(_MAGIC + bytes([_VERSION])) or len(payload) < PART_HEADER_BYTES:
            return payload
        _, _, index, count, name = _HEADER.unpack_from(payload)
        if not index < count <= MAX_PARTS:
            return None
        begun = self._open.get(topic)
        if begun is None or (begun.name, begun.count) != (name, count):
            self._open.pop(topic, None)
            if len(self._open) >= MAX_OPEN:
                del self._open[next(iter(self._open))]
            begun = self._open[topic] = _Open(name, count)
        return self._with(topic, begun, index, payload[PART_HEADER_BYTES:])

    def _with(self, topic: str, begun: _Open, index: int, part: bytes) -> bytes | None:
        begun.size += len(part) if index not in begun.parts else 0
        begun.parts[index] = begun.parts.get(index, part)
        if begun.size > MAX_MESSAGE_BYTES:
            del self._open[topic]
            return None
        if len(begun.parts) < begun.count:
            return None
        del self._open[topic]
        whole = b"".join(begun.parts[number] for number in range(begun.count))
        return whole if hashlib.sha256(whole).digest()[:8] == begun.name else None
