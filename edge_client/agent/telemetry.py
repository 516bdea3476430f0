"""What a device says of its work, and now and then in any case; it may be lost, and is not repeated."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

from edge_client.agent.presence import Presence
from edge_client.agent.session.state import Session, SessionPhase
from edge_client.agent.settings import AgentSettings
from edge_client.agent.worker import Progress
from edge_client.system.hardware.state import board_state
from edge_client.system.hardware.sysfs import ROOT
from schemas.messages import Task, Telemetry, Update
from schemas.values import BoardState

TELEMETRY_S = 1.0
"""Between two words on the progress of a training, or looks at the board, there is at least so much time; and
what is over sooner, a fetching for instance, is not worth a word."""
TAKES_LONG = ("fetching", "uploading")
"""What the server does not see by itself: it hears of it once where it lasts."""


class WorkTelemetry:
    """Of one device, in the name of its connection at the time; its board's files lie below `root`.

    `telemetry_every_s` of the settings bounds the time between two words, whatever the device does.
    """

    def __init__(self, settings: AgentSettings, presence: Presence, *, root: Path = ROOT) -> None:
        self._settings, self._presence = settings, presence
        self._look = partial(board_state, cores=settings.profile.cores, root=root)
        self._every = settings.telemetry_every_s or math.inf
        self._seen: tuple[float, BoardState] | None = None
        self._next = self._told_at = self._since = 0.0
        self._phase = self._told = "idle"
        self._progress: tuple[Task, dict[str, Any]] | None = None

    def begun(self, task: Task, now: float) -> Telemetry:
        """The work for a task begins."""
        return self._telemetry(_at_work(task), task, now)

    def progressed(self, event: Progress, now: float) -> Telemetry | None:
        """An epoch is done; None where the last word on that was just now."""
        details = {"epoch": event.epoch, "epochs": event.epochs, "loss": event.loss}
        self._progress = event.task, details
        if now < self._next:
            return None
        self._next = now + TELEMETRY_S
        return self._telemetry("training", event.task, now, **details)

    def connected(self, now: float) -> None:
        """The server has just heard all that a birth says."""
        self._told_at = now

    def turn(self, session: Session, now: float) -> Telemetry | None:
        """Where the device is; None unless nothing was said for long, or what it does takes long."""
        if not session.connected or math.isinf(self._every):
            return None
        phase, task = _phase(session), session.task
        if phase != self._phase:
            self._phase, self._since = phase, now
        unheard = phase in TAKES_LONG and phase != self._told and now >= self._since + TELEMETRY_S
        if not unheard and now < self._told_at + self._every:
            return None
        return self._telemetry(phase, task, now, **(self._progress_of(task) if phase == "training" else {}))

    def _progress_of(self, task: Task | None) -> dict[str, Any]:
        """What was said last of this very task."""
        known, details = self._progress or (None, {})
        return details if task is not None and known == task else {}

    def _telemetry(self, phase: Any, task: Task | None, now: float, **details: Any) -> Telemetry:
        self._told, self._told_at = phase, now
        return Telemetry(
            federation=self._settings.federation,
            device=self._settings.device,
            session=self._presence.session,
            phase=phase,
            round=task.round if task else None,
            board=self._board(now),
            **details,
        )

    def _board(self, now: float) -> BoardState:
        if self._seen is None or now >= self._seen[0] + TELEMETRY_S:
            self._seen = now, self._look()
        return self._seen[1]


def _at_work(task: Task) -> str:
    return "exporting" if task.action == "deliver" else "training"


def _phase(session: Session) -> str:
    """What the server calls the session's phase; a model in place is told, not uploaded."""
    if session.task is None or session.phase is SessionPhase.IDLE:
        return "idle"
    match session.phase:
        case SessionPhase.FETCHING:
            return "fetching"
        case SessionPhase.REPORTING if isinstance(session.result, Update):
            return "uploading"
        case _:
            return _at_work(session.task)
