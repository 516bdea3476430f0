"""Counts the fields of a protobuf file before it is parsed: two bytes of a file may take 140 in memory."""

from typing import Any

MESSAGE_TYPE = 11
"""protobuf's number of fields that hold a message."""
VARINT, EIGHT_BYTES, LENGTH, FOUR_BYTES = 0, 1, 2, 5
"""protobuf's encodings of a field."""
_MAX_VARINT = 10


def count_fields(data: bytes, descriptor: Any, *, limit: int) -> int:
    """The fields of a message and of all messages in it; counting stops above `limit`.

    Raises `ValueError` for bytes that are no such message. Nested messages are not read recursively.
    """
    count, ranges = 0, [(0, len(data), descriptor)]
    while ranges and count <= limit:
        position, end, kind = ranges.pop()
        inner = _messages_in(kind)
        while position < end and count <= limit:
            count += 1
            tag, position = _varint(data, position, end)
            start, position = _skip(data, position, end, tag & 7)
            if tag & 7 == LENGTH and tag >> 3 in inner:
                ranges.append((start, position, inner[tag >> 3]))
    return count


def _messages_in(descriptor: Any) -> dict[int, Any]:
    """The messages in a message by their field's number."""
    return {field.number: field.message_type for field in descriptor.fields if field.type == MESSAGE_TYPE}


def _skip(data: bytes, position: int, end: int, encoding: int) -> tuple[int, int]:
    """Where a field's content begins and ends."""
    if encoding == VARINT:
        return position, _varint(data, position, end)[1]
    sizes = {EIGHT_BYTES: 8, FOUR_BYTES: 4}
    if encoding == LENGTH:
        size, position = _varint(data, position, end)
    elif encoding in sizes:
        size = sizes[encoding]
    else:
        raise ValueError(f"a field of encoding {encoding}")
    if position + size > end:
        raise ValueError("a field is longer than its message")
    return position, position + size


def _varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """A number of seven bits a byte, the lowest first, and the position behind it."""
    value = shift = 0
    for index in range(position, min(end, position + _MAX_VARINT)):
        value |= (data[index] & 0x7F) << shift
        if data[index] < 0x80:
            return value, index + 1
        shift += 7
    raise ValueError("a number has no end")
