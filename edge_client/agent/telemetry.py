"""Informs the server how far the work is and how the board is. Messages may be lost and are not repeated."""

import math
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from edge_client.agent.messenger import Messenger
from edge_client.agent.presence import Presence
from edge_client.agent.service import Service
from edge_client.agent.session.state import Session, SessionPhase
from edge_client.agent.settings import AgentSettings
from edge_client.agent.worker import Progress
from edge_client.system.hardware import processor, sysfs
from edge_client.system.hardware.memory import memory, resident, storage
from edge_client.system.hardware.power import hottest, power, zones
from edge_client.transport.link_events import LinkUp
from schemas.messages import DeliverTask, Task, Telemetry, Update
from schemas.topics import Channel
from schemas.values import BoardState

TELEMETRY_S = 1.0
"""Minimum seconds between two progress reports or board readings; shorter phases are not reported."""
LONG_PHASES = ("fetching", "uploading")
"""Phases that the server cannot see by itself: each is reported once if it lasts `TELEMETRY_S`."""


def board_state(*, cores: int, root: Path = sysfs.ROOT, folder: Path | None = None) -> BoardState:
    """The current state, with the free space of `folder`; unreadable and impossible values are omitted."""
    busy, disk = processor.read_load(root), None if folder is None else storage(folder)
    read = {
        "celsius": hottest(zones(root)),
        "battery": power(root).battery,
        "memory_bytes": resident(root),
        "memory_free_bytes": memory(root).free,
        "load": None if busy is None else busy / max(1, cores),
        "disk_free_bytes": None if disk is None else disk.free,
    }
    try:
        return BoardState.model_validate(read)
    except ValidationError as error:
        wrong = {problem["loc"][0] for problem in error.errors()}
        return BoardState.model_validate({key: value for key, value in read.items() if key not in wrong})


class WorkTelemetry(Service):
    """Reports the phases of a device's work, and its state every `telemetry_every_s` seconds.

    `root` is the directory above `/proc` and `/sys`.
    """

    def __init__(
        self, settings: AgentSettings, presence: Presence, messenger: Messenger, *, root: Path = sysfs.ROOT
    ) -> None:
        self._settings, self._presence, self._messenger = settings, presence, messenger
        self._read_board = partial(
            board_state, cores=settings.profile.cores, root=root, folder=settings.state
        )
        self._every_s = settings.telemetry_every_s or math.inf
        self._board_read: tuple[float, BoardState] | None = None
        self._next = self._reported_at = self._since = 0.0
        self._phase = self._reported = "idle"
        self._progress: tuple[Task, dict[str, Any]] | None = None

    def on_connected(self, up: LinkUp, now: float) -> None:
        self._reported_at = now

    def begun(self, task: Task, now: float) -> None:
        self._report(_work_phase(task), task, now)

    def on_progress(self, event: Progress, now: float) -> None:
        """Report an epoch, unless one was reported less than `TELEMETRY_S` ago."""
        details = {"epoch": event.epoch, "epochs": event.epochs, "loss": event.loss}
        self._progress = event.task, details
        if now >= self._next:
            self._next = now + TELEMETRY_S
            self._report("training", event.task, now, **details)

    def tick(self, now: float, session: Session) -> None:
        """Report the state if the last report is too old, or the phase has become a long one."""
        if not session.connected or math.isinf(self._every_s):
            return
        phase, task = _phase(session), session.task
        if phase != self._phase:
            self._phase, self._since = phase, now
        lasts = phase in LONG_PHASES and phase != self._reported and now >= self._since + TELEMETRY_S
        if lasts or now >= self._reported_at + self._every_s:
            of, details = self._progress or (None, {})
            is_current = phase == "training" and task is not None and of == task
            self._report(phase, task, now, **(details if is_current else {}))

    def _report(self, phase: Any, task: Task | None, now: float, **details: Any) -> None:
        self._reported, self._reported_at = phase, now
        report = Telemetry(
            federation=self._settings.federation,
            device=self._settings.device,
            session=self._presence.session,
            phase=phase,
            round=task.round if task else None,
            board=self._board(now),
            **details,
        )
        self._messenger.publish(Channel.UP, report, qos=0)

    def _board(self, now: float) -> BoardState:
        if self._board_read is None or now >= self._board_read[0] + TELEMETRY_S:
            self._board_read = now, self._read_board()
        return self._board_read[1]


def _work_phase(task: Task) -> str:
    return "exporting" if isinstance(task, DeliverTask) else "training"


def _phase(session: Session) -> str:
    """The protocol's name of the session's phase; a delivery is reported without an upload."""
    if session.task is None or session.phase is SessionPhase.IDLE:
        return "idle"
    match session.phase:
        case SessionPhase.FETCHING:
            return "fetching"
        case SessionPhase.REPORTING if isinstance(session.result, Update):
            return "uploading"
        case _:
            return _work_phase(session.task)
