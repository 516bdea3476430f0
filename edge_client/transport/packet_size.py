"""How large the packets are that the broker really passes on: a pure state machine that a connection feeds.

A broker may announce its largest packet, close the connection on a larger one, or take it with thanks and
throw it away (Mosquitto's `message_size_limit`). So messages of the sizes that there are, the largest first,
are published on a topic of one's own: the first that comes back is what works. A small one goes before them;
where not even that comes back this client may not read what it writes, and what was announced is believed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from schemas.errors import ConfigError
from schemas.tensors.chunks import CHUNK_SIZES, FRAME_BYTES

LEAST_PACKET = CHUNK_SIZES[-1] + FRAME_BYTES
SMALL_BYTES = 64
SMALL_PATIENCE_S, PATIENCE_S = 5.0, 6.0
MARGIN = FRAME_BYTES // 2
"""What a packet has beside an echo's payload, at most; the rest of `FRAME_BYTES` is in the payload."""


@dataclass(frozen=True)
class Sizing:
    """Chunk sizes that are still to be tried, in bytes, the largest first; `found` is the one that works.

    `answers`: the small message has come back. `measured`: so has the one of the size that was found.
    """

    left: tuple[int, ...]
    until: float = 0.0
    answers: bool = False
    found: int | None = None
    measured: bool = False

    @property
    def asks(self) -> int | None:
        """How many bytes the payload has that is to be published next; None where nothing is."""
        if self.found is not None:
            return None
        return self.left[0] + MARGIN if self.answers else SMALL_BYTES


def fitting(max_packet: int | None) -> tuple[int, ...]:
    """The chunk sizes that fit the largest packet that was announced, if any; `ConfigError` for none."""
    fits = tuple(size for size in CHUNK_SIZES if max_packet is None or size + FRAME_BYTES <= max_packet)
    if not fits:
        raise too_small(f"of {max_packet} bytes at most")
    return fits


def too_small(what: str) -> ConfigError:
    """No chunk fits: nothing can be done here."""
    return ConfigError(
        f"the broker takes packets {what}, and at least {LEAST_PACKET} are needed:"
        f" max_packet_size {4 * CHUNK_SIZES[0]} in its configuration (and no message_size_limit)"
    )


def begin(max_packet: int | None, now: float) -> Sizing:
    """Find out on a new connection."""
    return Sizing(fitting(max_packet), until=now + SMALL_PATIENCE_S)


def again(sizing: Sizing, max_packet: int | None, now: float) -> Sizing:
    """Go on with the connection after one that has ended."""
    fits = set(fitting(max_packet))
    left = tuple(size for size in sizing.left if size in fits)
    return replace(_narrowed(sizing, left), until=now + SMALL_PATIENCE_S, answers=False)


def echoed(sizing: Sizing, size: int, now: float) -> Sizing:
    """A payload of that size has come back."""
    if sizing.found is None and size == SMALL_BYTES:
        return replace(sizing, answers=True, until=now + PATIENCE_S)
    if sizing.found is None and size - MARGIN in CHUNK_SIZES:
        return replace(sizing, found=size - MARGIN, measured=True)
    return sizing


def cut(sizing: Sizing) -> Sizing:
    """The connection has ended: while a size was on trial, that size is too much."""
    on_trial = sizing.found is None and sizing.answers
    return replace(_narrowed(sizing, sizing.left[1:]), answers=False) if on_trial else sizing


def overdue(sizing: Sizing, now: float) -> Sizing:
    """What has not come back in time is too large; where nothing comes back, the largest is believed in."""
    if sizing.found is not None or now < sizing.until:
        return sizing
    if not sizing.answers:
        return replace(sizing, found=sizing.left[0])
    return replace(_narrowed(sizing, sizing.left[1:]), until=now + PATIENCE_S)


def _narrowed(sizing: Sizing, left: tuple[int, ...]) -> Sizing:
    if not left:
        raise too_small(f"below {LEAST_PACKET} bytes only")
    return replace(sizing, left=left)
