"""Finds the largest packets that the broker passes on: a pure state machine, fed by a connection.

A broker may announce its largest packet, close the connection on a larger one, or accept it and drop it
(Mosquitto's `message_size_limit`). The client therefore publishes messages of each chunk size, the largest
first, on its own topic: the first that returns is used. A small message precedes them; if even that does not
return, the client may not read its own topic, and the announced size is used. A lost connection or a late
echo may have other causes: only a second pass without any echo shows that the broker takes no size.
"""

from dataclasses import dataclass, field, replace

from schemas.errors import ConfigError
from schemas.tensors.chunks import CHUNK_SIZES, FRAME_BYTES

MIN_PACKET = CHUNK_SIZES[-1] + FRAME_BYTES
SMALL_BYTES = 64
SMALL_PATIENCE_S, PATIENCE_S = 5.0, 6.0
MARGIN = FRAME_BYTES // 2
"""Most bytes of a packet around an echo's payload; the rest of `FRAME_BYTES` is in the payload."""


@dataclass(frozen=True)
class Sizing:
    """Chunk sizes that are left to try, in bytes, the largest first; `found` is the one that works.

    `answers`: the small message has returned. `measured`: so has the message of the size `found`. `every` are
    the sizes that were there to try, if a second pass is left.
    """

    left: tuple[int, ...]
    until: float = 0.0
    answers: bool = False
    found: int | None = None
    measured: bool = False
    every: tuple[int, ...] = field(default=(), compare=False)

    @property
    def payload_bytes(self) -> int | None:
        """Bytes of the payload to publish next; None when the size is found."""
        if self.found is not None:
            return None
        return self.left[0] + MARGIN if self.answers else SMALL_BYTES


def fitting(max_packet: int | None) -> tuple[int, ...]:
    """The chunk sizes that fit the announced largest packet, if any; `ConfigError` if none does."""
    fits = tuple(size for size in CHUNK_SIZES if max_packet is None or size + FRAME_BYTES <= max_packet)
    if not fits:
        raise too_small(f"of {max_packet} bytes at most")
    return fits


def too_small(what: str) -> ConfigError:
    """The error of a broker whose packets hold no chunk."""
    return ConfigError(
        f"the broker takes packets {what}, and at least {MIN_PACKET} are needed",
        remedy=f"max_packet_size {4 * CHUNK_SIZES[0]} in its configuration (and no message_size_limit)",
    )


def begin(max_packet: int | None, now: float) -> Sizing:
    fits = fitting(max_packet)
    return Sizing(fits, until=now + SMALL_PATIENCE_S, every=fits)


def again(sizing: Sizing, max_packet: int | None, now: float) -> Sizing:
    """Continue on the next connection."""
    fits = set(fitting(max_packet))
    left, every = (tuple(size for size in sizes if size in fits) for sizes in (sizing.left, sizing.every))
    narrowed = _narrow_sizes(replace(sizing, every=every), left)
    return replace(narrowed, until=now + SMALL_PATIENCE_S, answers=False)


def on_echo(sizing: Sizing, size: int, now: float) -> Sizing:
    """Note that a payload of that size has returned."""
    if sizing.found is None and size == SMALL_BYTES:
        return replace(sizing, answers=True, until=now + PATIENCE_S)
    if sizing.found is None and size - MARGIN in CHUNK_SIZES:
        return replace(sizing, found=size - MARGIN, measured=True)
    return sizing


def cut(sizing: Sizing) -> Sizing:
    """Drop the size on trial, if any, because the connection has ended."""
    on_trial = sizing.found is None and sizing.answers
    return replace(_narrow_sizes(sizing, sizing.left[1:]), answers=False) if on_trial else sizing


def overdue(sizing: Sizing, now: float) -> Sizing:
    """Drop a size whose echo is late; if no echo returns at all, use the largest size that fits."""
    if sizing.found is not None or now < sizing.until:
        return sizing
    if not sizing.answers:
        return replace(sizing, found=sizing.left[0])
    return replace(_narrow_sizes(sizing, sizing.left[1:]), until=now + PATIENCE_S)


def _narrow_sizes(sizing: Sizing, left: tuple[int, ...]) -> Sizing:
    if not left and sizing.every:
        return replace(sizing, left=sizing.every, every=())
    if not left:
        raise too_small(f"below {MIN_PACKET} bytes only")
    return replace(sizing, left=left)
