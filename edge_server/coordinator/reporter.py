"""What is shown and kept of a run, real or simulated: counts, notes, snapshots and the summary."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from edge_client.data.tasks.words import leading
from edge_client.system.logging.formatters import about
from edge_server.coordinator.coordinator import Coordinator
from edge_server.observability import counters as durations
from edge_server.observability import views
from edge_server.observability.counters import RunCounters
from edge_server.observability.snapshot import ServerParts, Snapshot, Watcher
from edge_server.rounds.event_entry import EventKind
from edge_server.rounds.events import EndRun, Note
from edge_server.rounds.state import Federation
from edge_server.storage.records import RoundRecord, Summary
from schemas.errors import EdgeError, PeerError, Reason

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Moment:
    """The run now: the state of its rounds, `now` and `began` in seconds of one clock, lengths of queues.

    `trouble` describes the fault of the connection; `simulated` are additional fields of a simulation.
    """

    federation: Federation
    now: float
    began: float = 0.0
    trouble: str = ""
    queues: Mapping[str, int] = field(default_factory=dict)
    parts: ServerParts | None = None
    simulated: Mapping[str, Any] = field(default_factory=dict)


class RunReporter:
    """Reports one run to its `watcher`, its event list and its log.

    `look` returns the run as it is; `clock` returns seconds since 1970, real or simulated. Snapshots are at
    least `every_s` seconds apart and take at most the `share` of the time.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        watcher: Watcher,
        counters: RunCounters,
        look: Callable[[], Moment],
        *,
        clock: Callable[[], float] = time.time,
        every_s: float = 0.0,
        share: float,
    ) -> None:
        self._coordinator, self._watcher, self._look, self._clock = coordinator, watcher, look, clock
        self.counters, self.phases = counters, durations.PhaseClock()
        self.began = time.monotonic()
        self._every_s, self._share = every_s, share
        self._trained = coordinator.context.trained_share
        self._next_snapshot = 0.0
        about(federation=coordinator.context.config.federation.name, run=coordinator.context.run)

    def note(self, note: Note) -> None:
        """Log, count and list a note."""
        level = logging.INFO if note.routine else logging.WARNING
        extra = {"what": note.what, "device": note.device, "reason": note.reason}
        log.log(level, "%s", self.counters.count_note(note), extra=extra)
        self.list(note)

    def list(self, note: Note) -> None:
        """Add a note to the event list alone."""
        self._coordinator.storage.events.record(note.event(self._clock()))

    def report_ignored(self, error: PeerError, device: str | None = None) -> None:
        """Log, count and list a message that was ignored; `device` is None where its sender is unknown."""
        self.counters.count_refusal(device, error.reason)
        self.list(Note("message ignored", device, Reason(error.reason), str(error)))
        extra = {"reason": error.reason} | ({} if device is None else {"device": device})
        sender = "" if device is None else f"{device}: "
        log.warning("%signored (%s): %s", sender, error.reason, error, extra=extra)

    def report_closed(self, record: RoundRecord) -> None:
        self.counters.add_round(record)
        self.note(round_closed(record))
        for warning in record.warnings:
            # Each is given once: rows of one minute are not merged.
            text = f"training goes wrong: round {record.round}: {warning.text}"
            self.note(Note(text, kind=EventKind.ROUND))

    def show_if_due(self) -> None:
        """Show a snapshot unless the last one is too recent."""
        began = time.monotonic()
        if began >= self._next_snapshot:
            self.show()
            now = time.monotonic()
            self._next_snapshot = now + max(self._every_s, (now - began) / self._share)

    def show(self, summary: Summary | None = None) -> None:
        """Show the watcher the run as it is; the last snapshot has its `summary`."""
        self._watcher.show(self._snapshot(summary))

    def finish(
        self, end: EndRun, export: Callable[[], Mapping[int, Path]], *, logged: bool = False
    ) -> Summary:
        """Write and show the summary of a run that is over; `export` returns the tiers' files.

        With `logged` the end is also logged.
        """
        exported: Mapping[int, Path] = {}
        try:
            exported = export()
        except (EdgeError, OSError) as error:
            end = EndRun("failed", f"the tiers' models: {error}")
        ended = Note(f"run {end.outcome}", detail=end.detail, kind=EventKind.ROUND, routine=True)
        (self.note if logged else self.list)(ended)
        summary = views.make_summary(
            self._look().federation,
            self.counters,
            end,
            config=self._coordinator.context.config,
            tier=self._coordinator.tiering.tier,
            parameters=self._coordinator.model.network.parameters,
            onnx={tier: f"onnx/{path.name}" for tier, path in exported.items()},
            duration_s=time.monotonic() - self.began,
            started_from=self._coordinator.model.started_from,
            trained=self._trained,
        )
        self._coordinator.finish(summary)
        self.show(summary)
        return summary

    def _snapshot(self, summary: Summary | None) -> Snapshot:
        moment, context = self._look(), self._coordinator.context
        load = views.make_workload(
            moment.federation,
            self.counters,
            context.config,
            phases=self.phases,
            work=context.durations,
            parts=moment.parts,
            **moment.queues,
        )
        shown = views.make_snapshot(
            moment.federation,
            self.counters,
            tier=self._coordinator.tiering.tier,
            ratios=context.config.tiers.levels,
            now=moment.now,
            began=moment.began,
            no_link=moment.trouble,
            tested_on="" if context.strategy.statistics else context.testing.tested_on,
            load=load,
            summary=summary,
        )
        return replace(shown, trained=self._trained, **moment.simulated)


def round_closed(record: RoundRecord) -> Note:
    counted = f"{len(record.completed)} of {len(record.selected)} updates"
    found = leading(record.test_metrics or record.client_metrics)
    where = "" if record.test_metrics else " on devices"
    tested = "" if found is None else f", {found[0].name} {found[0].text(found[1])}{where}"
    return Note(f"round {record.round} closed", detail=counted + tested, kind=EventKind.ROUND, routine=True)
