"""After the work of a round: what came of it is aggregated, or the round is abandoned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from edge_server.federation import Federation, Phase, Step, end
from edge_server.participant import Participant, Status
from edge_server.planning import wait
from edge_server.round_events import CloseRound, Note

RETRY_S = 2.0
"""Pause before an abandoned round is planned again; doubles with each abandonment."""

_DROPPED = frozenset({Status.MISSED, Status.DECLINED})


def close(federation: Federation, participants: Mapping[str, Participant]) -> Step:
    """Close the round with these participants, whose parts are all final; the others stay."""
    updates = {
        name: one.update
        for name, one in participants.items()
        if one.status is Status.COUNTED and one.update is not None
    }
    command = CloseRound(
        federation.round,
        updates=updates,
        selected=tuple(sorted(participants)),
        dropped=tuple(sorted(name for name, one in participants.items() if one.status in _DROPPED)),
        rejected={
            name: one.reason
            for name, one in participants.items()
            if one.status is Status.REFUSED and one.reason is not None
        },
        staleness={name: federation.round - update.round for name, update in updates.items()},
    )
    return replace(federation, phase=Phase.CLOSING), [command]


def abandon(federation: Federation, why: str, now: float) -> Step:
    """Plan the round anew after a pause, or end the run after too many attempts."""
    detail = f"round {federation.round}: {why}"
    if federation.abandoned >= federation.rules.attempts:
        return end(federation, "failed", f"{detail}; given up after {federation.abandoned + 1} attempts")
    again = replace(federation, abandoned=federation.abandoned + 1)
    waits, commands = wait(again, now + RETRY_S * 2**federation.abandoned)
    return waits, [Note("round abandoned", detail=detail), *commands]
