"""The phases in which a server can be on its way to the lease, each with what only it needs."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from schemas.messages import Lease

NEVER = float("-inf")


@dataclass(frozen=True)
class LeaseLog:
    """The `last` message that counts, heard at `heard_at` seconds; `beat` is the one to follow.

    `live`: heard since the connection was made, and not kept by the broker from before.
    """

    last: Lease | None = None
    beat: int = 0
    heard_at: float = NEVER
    live: bool = False

    def with_new_connection(self) -> "LeaseLog":
        """A new connection: the broker sends the retained message again, or none if it has forgotten it."""
        return replace(self, beat=0, live=False)

    def counts(self, lease: Lease, *, retained: bool) -> bool:
        if retained:
            return True
        if lease.state == "lost":
            return self.last is None or lease.holder.instance == self.last.holder.instance
        return lease.beat == self.beat + 1

    def hear(self, lease: Lease, now: float, *, retained: bool) -> "LeaseLog":
        """Take a message that counts."""
        if retained and self.last is not None and lease.epoch < self.last.epoch:
            # The broker was set back, or a will came late: what to follow is this, but nobody holds by it.
            return replace(self, beat=lease.beat)
        if lease.state == "lost" and self.last is not None and not retained:
            # A will says what was so when its connection was made.
            lease = self.last.model_copy(update={"state": "lost", "beat": lease.beat})
        return LeaseLog(lease, lease.beat, now, live=not retained)

    def based_on(self, lease: Lease, now: float) -> "LeaseLog":
        """Go on from a message that does not count, unless a later epoch is known."""
        if self.last is not None and lease.epoch < self.last.epoch:
            return self
        return LeaseLog(lease, lease.beat, now, live=True)


@dataclass(frozen=True)
class Looking:
    """The server listens for a holder.

    `since` is when it connected, or began to look again, in seconds; another `lives` that was heard to renew
    the lease.
    """

    since: float = NEVER
    lives: bool = False


@dataclass(frozen=True)
class Claim:
    """What each step of a claim hands to the next one.

    `contestable`: a holder may live that contradicts it; `served` is the newest epoch before it in which a
    server held the lease; `lives` is that of `Looking`, which goes on if the claim is given up.
    """

    contestable: bool = False
    served: int | None = None
    lives: bool = False


@dataclass(frozen=True)
class Claiming:
    """The claim was published at `since` and has not come back; it is published again at `next_at`."""

    claim: Claim
    since: float
    next_at: float


@dataclass(frozen=True)
class Settling:
    """The claim has come back and counts; it waits for contradiction `until` then."""

    claim: Claim
    until: float


@dataclass(frozen=True)
class Verifying:
    """Nobody has contradicted the claim; the broker is asked whether it retains a contradiction."""

    claim: Claim


@dataclass(frozen=True)
class Confirming:
    """The claim stands and is renewed; no renewal has come back.

    `sent` is when each renewal was sent, by its beat; the next one is due at `next_at`.
    """

    claim: Claim
    sent: Mapping[int, float]
    next_at: float


@dataclass(frozen=True)
class Held:
    """A renewal has come back: the server holds the lease before `held_until`.

    `sent` is when each renewal was sent that has not come back; the next one is due at `next_at`.
    """

    held_until: float
    sent: Mapping[int, float] = field(default_factory=dict)
    next_at: float = NEVER


@dataclass(frozen=True)
class Taken:
    """Another server has the lease, `by` this message; `behind`: the run went on there, past this folder."""

    by: Lease
    behind: bool = False


@dataclass(frozen=True)
class Lost:
    """The server held the lease, and another one has taken over, `by` this message."""

    by: Lease


@dataclass(frozen=True)
class Mute:
    """No claim has come back: the broker does not pass the topic on, or has lost what was published.

    The claim, with `served` as before, is published again at `next_at`.
    """

    served: int | None
    next_at: float


ClaimStep = Claiming | Settling | Verifying | Confirming
Phase = Looking | ClaimStep | Held | Taken | Lost | Mute
