"""The phases in which a server can be on its way to the lease, each with what only it needs."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from edge_server.transport.lease.log import NEVER
from schemas.messages import Lease


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
