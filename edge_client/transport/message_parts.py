"""Messages that do not fit one packet of the broker, cut into parts and put together again.

A part is no JSON and no chunk: it begins with a mark of its own. Blobs never come in parts, they have chunks.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, field

from schemas.messages.message import MAX_MESSAGE_BYTES

_HEADER = struct.Struct("!2sBxII8s")
_MAGIC, _VERSION = b"EP", 1
PART_HEADER_BYTES = _HEADER.size
MAX_PARTS = 64
MAX_OPEN = 64
"""So many messages are put together at a time, each of one topic; the oldest is dropped for another."""


def split(payload: bytes, most: int | None) -> list[bytes]:
    """The payload as it is where it has at most `most` bytes, else its parts, each of that size at most."""
    if most is None or len(payload) <= most:
        return [payload]
    room = most - PART_HEADER_BYTES
    pieces = [payload[at : at + room] for at in range(0, len(payload), room)]
    name = hashlib.sha256(payload).digest()[:8]
    return [
        _HEADER.pack(_MAGIC, _VERSION, index, len(pieces), name) + piece for index, piece in enumerate(pieces)
    ]


@dataclass
class _Open:
    """A message of which some parts are here."""

    name: bytes
    count: int
    pieces: dict[int, bytes] = field(default_factory=dict)
    size: int = 0


class Parts:
    """Puts messages together, by topic; another message on a topic ends the one before."""

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}

    def __len__(self) -> int:
        return len(self._open)

    def take(self, topic: str, payload: bytes) -> bytes | None:
        """The whole message, once its last part is here; what is no part is whole already."""
        if not payload.startswith(_MAGIC + bytes([_VERSION])) or len(payload) < PART_HEADER_BYTES:
            return payload
        _, _, index, count, name = _HEADER.unpack_from(payload)
        if not index < count <= MAX_PARTS:
            return None
        begun = self._open.get(topic)
        if begun is None or (begun.name, begun.count) != (name, count):
            begun = self._begin(topic, name, count)
        return self._with(topic, begun, index, payload[PART_HEADER_BYTES:])

    def _begin(self, topic: str, name: bytes, count: int) -> _Open:
        self._open.pop(topic, None)
        if len(self._open) >= MAX_OPEN:
            del self._open[next(iter(self._open))]
        begun = self._open[topic] = _Open(name, count)
        return begun

    def _with(self, topic: str, begun: _Open, index: int, piece: bytes) -> bytes | None:
        begun.size += len(piece) if index not in begun.pieces else 0
        begun.pieces[index] = begun.pieces.get(index, piece)
        if begun.size > MAX_MESSAGE_BYTES:
            del self._open[topic]
            return None
        if len(begun.pieces) < begun.count:
            return None
        del self._open[topic]
        whole = b"".join(begun.pieces[number] for number in range(begun.count))
        return whole if hashlib.sha256(whole).digest()[:8] == begun.name else None
