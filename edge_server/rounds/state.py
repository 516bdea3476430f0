"""The state of a run: its rules, its devices, its current round."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal

from edge_server.rounds import agreed_lists, events, openings
from edge_server.rounds.broadcast.pacing import Broadcast
from edge_server.rounds.fleet import Fleet
from edge_server.rounds.participant import AT_WORK, Participant, Status
from edge_server.rounds.participants import Participants, Sightings
from edge_server.rounds.reputation import ReputationRules, Reputations
from edge_server.rounds.sites import presence, sums
from edge_server.security.secure_aggregation.protocol import MaskAgreement
from schemas import messages, values


class Phase(StrEnum):
    STARTING = "starting"
    WAITING = "waiting"
    PLANNING = "planning"
    TRAINING = "training"
    CLOSING = "aggregating"
    DELIVERING = "delivering"
    ENDED = "ended"


@dataclass(frozen=True)
class Buffering:
    """Buffered asynchronous rounds: each closes with `size` updates, whichever round they began in.

    `max_staleness`: rounds that an update may lag behind; `concurrency`: devices that train at once.
    """

    size: int
    max_staleness: int = 20
    concurrency: int = 10


@dataclass(frozen=True)
class RoundRules:
    """The rules of rounds: times in seconds, `quorum` as a share of the needed updates.

    A run begins with `start_clients` devices, any later round with `min_clients`. `over_select` is the factor
    of devices asked beyond those needed. Without `buffering` rounds are synchronous. `masking_step_s` limits
    each step of secure aggregation. `replaces`: a synchronous round replaces devices that give their tasks
    back. `deliver_every`: rounds between deliveries (0: only at the end). `roll_back`: a closed round whose
    model cannot be trained is undone. `opening` says when rounds begin. A run of `LAST_ROUND` rounds has no
    end, and goes on after any number of abandoned attempts. `goes_on`: the run for which this one asks for
    statistics follows it. `sites` have gateways, which speak for the devices named after them.
    """

    rounds: int
    start_clients: int = 1
    min_clients: int = 1
    quorum: float = 0.5
    over_select: float = 1.0
    deadline_s: float = 600.0
    rejoin_s: float = 15.0
    uploads_at_once: int = 32
    attempts: int = 5
    deliver: bool = True
    deliver_every: int = 0
    replaces: bool = True
    buffering: Buffering | None = None
    reputation: ReputationRules = field(default_factory=ReputationRules)
    masking_step_s: float = 30.0
    roll_back: bool = True
    goes_on: bool = False
    opening: openings.OpeningRules = field(default_factory=openings.OpeningRules)
    sites: tuple[str, ...] = ()

    @property
    def endless(self) -> bool:
        return self.rounds == values.LAST_ROUND


@dataclass(frozen=True)
class Undone:
    """A closed round that was undone; plannings up to `attempt` are void, `left_out` took part in it."""

    round: int
    attempt: int
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Federation:
    """The whole state of a run.

    `attempt` numbers the plannings of the run, `plannings` counts those of this round. `needed` updates close
    a synchronous round (None: all); devices in `replaced` have had a replacement requested. `counted` is each
    device's last counted update; those in `late` were claimed when the last round closed without them.
    `gather_until`: a restarted server plans nothing before its known devices are back, or this time. `ended`
    says why the run ends early. `masking` is the agreement of a masked round, `broadcast` what is published
    for several devices at once. `untrained` counts this round's abandoned attempts in which training itself
    failed. `diverged`: the model of the last closed round yields no finite numbers. `undone` are the rounds
    that were undone, in order. `columns` and `classes` are named before anything is trained. `sightings` are
    the processes that used a device's name. `announced_end` is the end that an earlier process of the server
    has sent to the devices. `sites` are the gateways that were heard; a round that waits for their sums is
    `summing`.
    """

    name: str
    run: str
    rules: RoundRules
    phase: Phase = Phase.STARTING
    round: int = 1
    attempt: int = 0
    plannings: int = 0
    fleet: Fleet = field(default_factory=Fleet)
    participants: Participants = field(default_factory=Participants)
    needed: int | None = None
    replaced: frozenset[str] = frozenset()
    not_before: float = 0.0
    abandoned: int = 0
    gather_until: float = 0.0
    counted: Mapping[str, messages.Update] = field(default_factory=dict)
    late: Mapping[str, messages.Update] = field(default_factory=dict)
    ended: str = ""
    reputations: Reputations = field(default_factory=dict)
    masking: MaskAgreement | None = None
    broadcast: Broadcast | None = None
    untrained: int = 0
    diverged: bool = False
    undone: tuple[Undone, ...] = ()
    columns: agreed_lists.ColumnList = field(default_factory=agreed_lists.ColumnList)
    classes: agreed_lists.ClassList = field(default_factory=agreed_lists.ClassList)
    sightings: Sightings = field(default_factory=dict)
    announced_end: events.EndRun | None = None
    sites: presence.Sites = field(default_factory=presence.Sites)
    summing: sums.Summing | None = None

    @property
    def at_work(self) -> tuple[Participant, ...]:
        return self.participants.having(AT_WORK)

    @property
    def working(self) -> int:
        return self.participants.count(AT_WORK)

    @property
    def updates(self) -> dict[str, messages.Update]:
        counted = self.participants.having({Status.COUNTED})
        return {part.device: part.update for part in counted if part.update is not None}

    @property
    def done_count(self) -> int:
        return self.participants.count({Status.COUNTED})

    @property
    def deadline(self) -> float | None:
        """The next deadline of a participant at work; None if there is none."""
        return min((part.deadline for part in self.at_work), default=None)


Step = tuple[Federation, list[events.Command]]


def is_gathered(federation: Federation, now: float) -> bool:
    """Whether the devices known before a restart are back, or the time for that is over."""
    return now >= federation.gather_until or all(known.alive for known in federation.fleet.devices.values())


def with_participant(federation: Federation, stepped: tuple[Participant, list[events.Command]]) -> Step:
    participant, commands = stepped
    return replace(federation, participants=federation.participants.with_participant(participant)), commands


def is_over(federation: Federation) -> bool:
    """Whether no round follows the closed one."""
    return federation.round >= federation.rules.rounds or bool(federation.ended)


def oldest_round(federation: Federation) -> int:
    """The earliest round whose updates still count."""
    buffering = federation.rules.buffering
    lag = 0 if buffering is None else buffering.max_staleness
    return max(1, federation.round - lag)


def announce(
    federation: Federation, phase: Literal["waiting", "training", "aggregating", "delivering"]
) -> events.Command:
    return events.Announce(
        messages.RoundAnnouncement(
            federation=federation.name,
            run=federation.run,
            # A server that was restarted in the first round may have none.
            round=max(1, federation.round),
            rounds=federation.rules.rounds,
            phase=phase,
            selected=len(federation.participants),
            oldest=oldest_round(federation),
        )
    )


def end(federation: Federation, outcome: events.RunOutcome, detail: str = "") -> Step:
    """End the run; the end is on disk before a device receives it."""
    message = messages.FederationEnd(
        federation=federation.name,
        run=federation.run,
        outcome=outcome,
        rounds=federation.rules.rounds,
        goes_on=federation.rules.goes_on and outcome == "finished",
    )
    ended = replace(federation, phase=Phase.ENDED)
    return ended, [events.EndRun(outcome, detail or federation.ended), events.Announce(message)]
