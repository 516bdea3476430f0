"""The state of a run as far as rounds go: its rules, its devices, the round under way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from edge_server.fleet import Fleet
from edge_server.participant import Participant
from edge_server.round_events import Command
from schemas.messages import Update


class Phase(StrEnum):
    """Where the run is."""

    STARTING = "starting"
    WAITING = "waiting"
    PLANNING = "planning"
    TRAINING = "training"
    CLOSING = "aggregating"
    DELIVERING = "delivering"
    ENDED = "ended"


IN_ROUND = frozenset({Phase.TRAINING, Phase.DELIVERING})


@dataclass(frozen=True)
class RoundRules:
    """What makes a round: times in seconds, `quorum` as a share of the selected devices.

    A run begins with `start_clients` devices, and any later round with `min_clients`.
    """

    rounds: int
    start_clients: int = 1
    min_clients: int = 1
    quorum: float = 0.5
    deadline_s: float = 600.0
    rejoin_s: float = 15.0
    uploads_at_once: int = 32
    attempts: int = 5
    deliver: bool = True


@dataclass(frozen=True)
class Federation:
    """The whole state of a run, as far as rounds go. `counted` holds each device's last counted update."""

    name: str
    run: str
    rules: RoundRules
    phase: Phase = Phase.STARTING
    round: int = 1
    attempt: int = 0
    fleet: Fleet = field(default_factory=Fleet)
    participants: Mapping[str, Participant] = field(default_factory=dict)
    deadline: float = 0.0
    not_before: float = 0.0
    abandoned: int = 0
    counted: Mapping[str, Update] = field(default_factory=dict)


Step = tuple[Federation, list[Command]]


def with_participant(federation: Federation, stepped: tuple[Participant, list[Command]]) -> Step:
    """Put a participant's next state, and its commands, into the federation's."""
    participant, commands = stepped
    participants = {**federation.participants, participant.device: participant}
    return replace(federation, participants=participants), commands


def time_left(federation: Federation, now: float) -> float:
    """Seconds until the round's deadline."""
    return max(0.0, federation.deadline - now)
