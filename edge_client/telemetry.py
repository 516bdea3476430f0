"""What a device says of its work while it works: it may be lost, and is not said again."""

from __future__ import annotations

from typing import Any

from edge_client.agent_settings import AgentSettings
from edge_client.presence import Presence
from edge_client.worker import Progress
from schemas.messages import Task, Telemetry

TELEMETRY_S = 1.0
"""Between two words on the progress of a training there is at least so much time."""


class WorkTelemetry:
    """Of one device, in the name of its connection at the time."""

    def __init__(self, settings: AgentSettings, presence: Presence) -> None:
        self._settings, self._presence = settings, presence
        self._next = 0.0

    def begun(self, task: Task) -> Telemetry:
        """The work for a task begins."""
        return self._telemetry("exporting" if task.action == "deliver" else "training", task)

    def progressed(self, event: Progress, now: float) -> Telemetry | None:
        """An epoch is done; None where the last word on that was just now."""
        if now < self._next:
            return None
        self._next = now + TELEMETRY_S
        details = {"epoch": event.epoch, "epochs": event.epochs, "loss": event.loss}
        return self._telemetry("training", event.task, **details)

    def _telemetry(self, phase: Any, task: Task, **details: Any) -> Telemetry:
        return Telemetry(
            federation=self._settings.federation,
            device=self._settings.device,
            session=self._presence.session,
            phase=phase,
            round=task.round,
            **details,
        )
