"""Updates that counted before: the same bytes in another round are a replay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from schemas.errors import PeerError
from schemas.values import Reason

MOST = 10_000


@dataclass(frozen=True)
class Replays:
    """In which round each device's latest digests counted first; the newest `MOST` of the run.

    Within one round the same bytes may come again: a round that is planned anew trains the same model with
    the same seed. Another device's bytes are no replay: two devices with the same few examples learn alike.
    """

    rounds: Mapping[tuple[str, str], int] = field(default_factory=dict)

    def check(self, device: str, digest: str, round_number: int, *, moved: bool) -> None:
        """Raise `PeerError` for bytes of another round; an update that moves nothing is always alike."""
        first = self.rounds.get((device, digest), round_number)
        if moved and first != round_number:
            raise PeerError(f"the bytes counted in round {first} already", reason=Reason.REPLAYED)

    def counted(self, device: str, digest: str, round_number: int) -> Replays:
        """With this one."""
        rounds = {**self.rounds}
        rounds.setdefault((device, digest), round_number)
        if len(rounds) > MOST:
            del rounds[next(iter(rounds))]
        return Replays(rounds)

    def folded(self, rows: Iterable[tuple[str, str, int]]) -> Replays:
        """After these accepted updates in order: device, digest, round."""
        replays = self
        for device, digest, number in rows:
            replays = replays.counted(device, digest, number)
        return replays
