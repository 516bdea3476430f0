"""The state of a run as far as rounds go: its rules, its devices, the round under way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal

from edge_server.rounds.broadcast.pacing import Broadcast
from edge_server.rounds.class_list import ClassList
from edge_server.rounds.events import Announce, Command, EndRun
from edge_server.rounds.fleet import Fleet
from edge_server.rounds.name_sightings import Sightings
from edge_server.rounds.participant import AT_WORK, Participant, Status
from edge_server.rounds.participants import Participants
from edge_server.rounds.reputation import ReputationRules, Reputations
from edge_server.security.secure_aggregation.protocol import MaskAgreement
from schemas.messages import FederationEnd, RoundAnnouncement, Update


class Phase(StrEnum):
    """Where the run is."""

    STARTING = "starting"
    WAITING = "waiting"
    PLANNING = "planning"
    TRAINING = "training"
    CLOSING = "aggregating"
    DELIVERING = "delivering"
    ENDED = "ended"


@dataclass(frozen=True)
class Buffering:
    """Buffered asynchronous rounds: each closes with `size` updates, whichever round they were begun in.

    `max_staleness` is how many rounds an update may lag behind, `concurrency` how many devices train at once.
    """

    size: int
    max_staleness: int = 20
    concurrency: int = 10


@dataclass(frozen=True)
class RoundRules:
    """What makes a round: times in seconds, `quorum` as a share of the updates that are needed.

    A run begins with `start_clients` devices, and any later round with `min_clients`. `over_select` times
    as many devices are asked as are needed. Without `buffering` rounds are synchronous. Where updates are
    masked, each step of agreeing may take `masking_step_s`. A device that gives its task back is replaced in
    a synchronous round, unless it `replaces` none. With `deliver_every` models are delivered after every so
    many rounds, too, and not at the end alone. With `roll_back` a closed round is undone whose model nobody
    can train.
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


@dataclass(frozen=True)
class Undone:
    """A closed round whose model was given up for the one before it.

    Plannings up to `attempt` are void; the devices of `left_out` had a part in the round.
    """

    round: int
    attempt: int
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Federation:
    """The whole state of a run, as far as rounds go.

    `attempt` numbers the plannings of the run, `plannings` counts those of this round; `needed` updates
    close a synchronous round (None: all), in which others were asked for in the place of the `replaced`.
    `counted` holds each device's last counted update. A server that
    was restarted lets the devices that it knew come back, until `gather_until`, before it plans anything.
    `ended` says why the run is done before its last round. `masking` is what the round's devices have agreed
    on, where it is masked; `broadcast` is what is published for several of them at once. `untrained` counts
    this round's abandoned attempts in which training itself failed; the last closed round has `diverged` if
    its model computes no numbers; the rounds that were given up are `undone`, in order. The model's
    `classes` have their names before anything is trained. `sightings` are of devices that came
    as another process than before.
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
    counted: Mapping[str, Update] = field(default_factory=dict)
    ended: str = ""
    reputations: Reputations = field(default_factory=dict)
    masking: MaskAgreement | None = None
    broadcast: Broadcast | None = None
    untrained: int = 0
    diverged: bool = False
    undone: tuple[Undone, ...] = ()
    classes: ClassList = field(default_factory=ClassList)
    sightings: Sightings = field(default_factory=dict)

    @property
    def at_work(self) -> tuple[Participant, ...]:
        """The participants whose part is still open."""
        return self.participants.having(AT_WORK)

    @property
    def working(self) -> int:
        """How many are at work."""
        return self.participants.count(AT_WORK)

    @property
    def updates(self) -> dict[str, Update]:
        """The counted updates that wait to be aggregated."""
        counted = self.participants.having({Status.COUNTED})
        return {one.device: one.update for one in counted if one.update is not None}

    @property
    def done(self) -> int:
        """How many updates wait to be aggregated."""
        return self.participants.count({Status.COUNTED})

    @property
    def deadline(self) -> float | None:
        """The next deadline of those who are at work; None when nobody is."""
        return min((one.deadline for one in self.at_work), default=None)


Step = tuple[Federation, list[Command]]


def is_gathered(federation: Federation, now: float) -> bool:
    """Whether the devices that were there before a restart are back, or have had their time."""
    return now >= federation.gather_until or all(one.alive for one in federation.fleet.devices.values())


def with_participant(federation: Federation, stepped: tuple[Participant, list[Command]]) -> Step:
    """Put a participant's next state, and its commands, into the federation's."""
    participant, commands = stepped
    return replace(federation, participants=federation.participants.put(participant)), commands


def is_over(federation: Federation) -> bool:
    """Whether no round follows the one that is closed."""
    return federation.round >= federation.rules.rounds or bool(federation.ended)


def oldest_round(federation: Federation) -> int:
    """The earliest round whose tasks are still wanted."""
    buffering = federation.rules.buffering
    lag = 0 if buffering is None else buffering.max_staleness
    return max(1, federation.round - lag)


def announce(
    federation: Federation, phase: Literal["waiting", "training", "aggregating", "delivering"]
) -> Command:
    """Tell all devices where the run is."""
    return Announce(
        RoundAnnouncement(
            federation=federation.name,
            run=federation.run,
            round=federation.round,
            rounds=federation.rules.rounds,
            phase=phase,
            selected=len(federation.participants),
            oldest=oldest_round(federation),
        )
    )


def end(
    federation: Federation, outcome: Literal["finished", "failed", "interrupted"], detail: str = ""
) -> Step:
    """The run is over."""
    message = FederationEnd(
        federation=federation.name, run=federation.run, outcome=outcome, rounds=federation.rules.rounds
    )
    return replace(federation, phase=Phase.ENDED), [
        Announce(message),
        EndRun(outcome, detail or federation.ended),
    ]
