"""Detects replays: bytes of an update that counted in another round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from schemas.errors import PeerError
from schemas.values import Reason

MOST = 10_000


@dataclass(frozen=True)
class Replays:
    """The round in which each digest of a device first counted, for the newest `MOST` of the run.

    Equal bytes in one round are no replay: a repeated planning trains the same model with the same seed. Nor
    are equal bytes of two devices, which may have the same few examples.
    """

    rounds: Mapping[tuple[str, str], int] = field(default_factory=dict)

    def check(self, device: str, digest: str, round_number: int, *, moved: bool) -> None:
        """Raise `PeerError` for bytes of another round, unless the update is all zeros (not `moved`)."""
        first = self.rounds.get((device, digest), round_number)
        if moved and first != round_number:
            raise PeerError(f"the bytes counted in round {first} already", reason=Reason.REPLAYED)

    def counted(self, device: str, digest: str, round_number: int) -> Replays:
        """The replays with this update."""
        rounds = {**self.rounds}
        rounds.setdefault((device, digest), round_number)
        if len(rounds) > MOST:
            del rounds[next(iter(rounds))]
        return Replays(rounds)

    def after(self, rows: Iterable[tuple[str, str, int]]) -> Replays:
        """The replays with these accepted updates in order: device, digest, round."""
        replays = self
        for device, digest, number in rows:
            replays = replays.counted(device, digest, number)
        return replays
