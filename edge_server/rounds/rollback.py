"""When the last closed round is undone and the model before it restored, and what then follows.

A device can send numbers that the firewall admits but that produce a model, or a state, that cannot be
trained. Devices that are merely offline never cause this: enough must have answered, and their training must
have failed.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from statistics import median

from edge_server.rounds import event_entry, events, quarantine
from edge_server.rounds.participant import Participant, Status
from edge_server.rounds.participants import Participants
from edge_server.rounds.reputation import FORGIVEN, ROLLED_BACK, quarantined_devices, replay_strikes
from edge_server.rounds.state import Federation, Phase, Step, Undone, announce
from schemas.errors import Reason

TRIES = 2  # Attempts of a round in which training fails before the round before it is undone
IN_A_ROW = 2  # Consecutive rounds that may be undone; the second time other devices are excluded
FAILED = frozenset({Reason.TASK_FAILED, Reason.NOT_FINITE, Reason.OUT_OF_BOUNDS, Reason.HARMFUL})
"""Reasons for which an honest device's training fails on a broken model."""
_ANSWERED = frozenset({Status.REFUSED, Status.DECLINED})


def training_failed(participants: Iterable[Participant], *, quorum: int) -> bool:
    """Whether a round with these participants would count if no training had failed."""
    parts = list(participants)
    counted = sum(part.status is Status.COUNTED for part in parts)
    failed = sum(part.status in _ANSWERED and part.reason in FAILED for part in parts)
    return counted < quorum <= counted + failed


def can_undo(federation: Federation, number: int) -> bool:
    """Whether round `number`, the last closed one, may be undone."""
    if not federation.rules.roll_back or number < 1:
        return False
    undone = {earlier.round for earlier in federation.undone}
    in_a_row = {number - before for before in range(1, IN_A_ROW + 1)}
    return number not in undone and not in_a_row <= undone


def request_rollback(federation: Federation, number: int, why: str) -> Step:
    """Request the model before round `number`; nothing is planned until it is in place."""
    forgiven = _forgiven(federation, number)
    reputations = replay_strikes(
        ((*row, FORGIVEN) for row in forgiven), federation.rules.reputation, federation.reputations
    )
    out = quarantined_devices(reputations, number + 1)
    command = events.RollBack(
        undone=number,
        attempt=federation.attempt,
        able=tuple(device.name for device in federation.fleet.able() if device.name not in out),
        fewest=max(1, federation.rules.min_clients),
        why=why,
        forgiven=forgiven,
    )
    undoing = replace(federation, phase=Phase.CLOSING, round=number, diverged=False)
    return undoing, [announce(undoing, "waiting"), command]


def _forgiven(federation: Federation, number: int) -> tuple[tuple[str, int], ...]:
    """Strikes to forgive, as (device, round): caused by the model, or exclusions that did not help."""
    following = number + 1
    failed = [
        (device, following)
        for device, reputation in sorted(federation.reputations.items())
        if reputation.reasons.get(following) in FAILED
    ]
    before = federation.undone[-1] if federation.undone else None
    in_vain = before.left_out if before is not None and before.round == number - 1 else ()
    return (*failed, *((device, number) for device in in_vain))


def finish_rollback(federation: Federation, event: events.RolledBack) -> Step:
    """The earlier model is in place: exclude the devices that took part in the round for some rounds."""
    command = event.command
    rows = strike_rows(command, event.left_out)
    # In a buffered round.
    stay = (
        part for part in federation.participants.values() if not part.final or part.status is Status.COUNTED
    )
    after = replace(
        federation,
        participants=Participants.of(part for part in stay if part.device not in event.left_out),
        reputations=replay_strikes(rows, federation.rules.reputation, federation.reputations),
        undone=(*federation.undone, Undone(command.undone, command.attempt, event.left_out)),
        untrained=0,
    )
    note = events.Note(
        f"round {command.undone} is undone: going on with the model before it",
        detail=f"{command.why}; left out for some rounds: {', '.join(event.left_out) or 'nobody'}",
        kind=event_entry.EventKind.ROUND,
    )
    # The quarantine begins with the round that follows.
    ahead = replace(after, round=command.undone + 1)
    commands: list[events.Command] = [note]
    for device in event.left_out:
        commands += quarantine.announce_quarantine(ahead, device)
    return after, commands


def strike_rows(command: events.RollBack, left_out: Iterable[str]) -> list[tuple[str, int, str]]:
    forgiven = [(device, number, FORGIVEN) for device, number in command.forgiven]
    return [*forgiven, *((device, command.undone + 1, ROLLED_BACK) for device in left_out)]


def vain_rollback_text(federation: Federation) -> str:
    """Addition to the reason of a failed run whose round followed a rollback."""
    before = federation.undone[-1] if federation.undone else None
    if before is None or before.round != federation.round - 1:
        return ""
    return f"; going back to the model before round {before.round} did not help"


OUTSTANDING = 10.0  # An update stands out if a measure lies this many spreads above the median
SIGMA = 1.4826
MIN_SPREAD = 0.1  # Smallest spread, as a share of the median: equal measures would have a spread of 0

Measures = Mapping[str, float]
"""An update's measures by name; each grows with the update's effect on the model."""


def choose_suspects(measures: Mapping[str, Measures], able: Collection[str], fewest: int) -> tuple[str, ...]:
    """The devices to exclude, of those whose updates have these `measures`, sorted by name.

    All of them if at least `fewest` of the `able` devices remain. Otherwise those that stand out, or else
    the half with the highest scores; if that does not help, the other half remains for a second attempt.
    """
    involved = sorted(measures)
    if len(set(able) - set(involved)) >= fewest:
        return tuple(involved)
    most = len(able) - fewest
    scores = _scores(measures)
    ranked = sorted((name for name in involved if name in set(able)), key=lambda name: (-scores[name], name))
    outstanding = [name for name in ranked if scores[name] > OUTSTANDING]
    chosen = outstanding or ranked[: (len(ranked) + 1) // 2]
    return tuple(sorted(chosen[: max(0, most)]))


def _scores(measures: Mapping[str, Measures]) -> dict[str, float]:
    """How many spreads each update's most extreme measure lies above the round's median."""
    names = sorted({name for each in measures.values() for name in each})
    known = {name: [each.get(name, 0.0) for each in measures.values()] for name in names}
    spreads = {name: _spread(values) for name, values in known.items()}
    return {
        device: max(
            ((each.get(name, 0.0) - usual) / spread for name, (usual, spread) in spreads.items()), default=0.0
        )
        for device, each in measures.items()
    }


def _spread(values: list[float]) -> tuple[float, float]:
    """The median, and the median absolute deviation from it scaled to a standard deviation."""
    usual = median(values)
    spread = SIGMA * median(abs(value - usual) for value in values)
    return usual, max(spread, MIN_SPREAD * abs(usual), 1e-12)
