"""A rollout's entries in the event list of the run that made its version."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from edge_server.releases.registry.registry import Registry, Version
from edge_server.releases.rollout.state import Rollout, RolloutPhase
from edge_server.releases.rollout.target import ENDED, FAILED
from edge_server.rounds import event_entry, events
from edge_server.storage.event_list import EventRecorder
from edge_server.storage.records import Summary
from edge_server.storage.run_folder import RunFolder
from edge_server.storage.service_folder import ServiceFolder
from schemas.errors import format_count


def changes(before: Rollout | None, after: Rollout) -> Iterator[events.Note]:
    """The notes on what has changed since `before`; for a resumed rollout, its phase."""
    if before is None or before.phase is not after.phase:
        yield _note(f"rollout {after.phase}", f"{after.version}{f': {after.why}' if after.why else ''}")
    opened = -1 if before is None or before.phase is RolloutPhase.GATHERING else before.opened
    if after.phase is RolloutPhase.RUNNING and opened < after.opened:
        count = len(after.group(after.opened))
        what, of = f"group {after.opened + 1} open", f"of {after.groups}"
        yield _note(what, f"{of}, {format_count(count, 'device')}: {after.version}")
    for name, target in after.targets.items():
        known = None if before is None else before.targets.get(name)
        if known is not None and known.status is not target.status and target.status in ENDED | FAILED:
            why = str(target.report.cause or "") if target.report is not None else ""
            note = _note(f"rollout: {target.status}", f"{after.version}{f': {why}' if why else ''}")
            yield replace(note, device=name)


def _note(what: str, detail: str) -> events.Note:
    return events.Note(what, detail=detail, kind=event_entry.EventKind.ROLLOUT, routine=True)


class RolloutEvents:
    """Records each change of a rollout in the event list of a run's folder, if there is one."""

    def __init__(self, folder: Path | None) -> None:
        self._recorder = None if folder is None else EventRecorder(RunFolder(folder).events)
        self._last: Rollout | None = None

    def show(self, rollout: Rollout) -> None:
        if self._recorder is not None and rollout is not self._last:
            for note in changes(self._last, rollout):
                self._recorder.record(note.event(time.time()))
        self._last = rollout

    def close(self) -> None:
        if self._recorder is not None:
            self._recorder.close()


def run_of(registry: Registry, version: Version) -> Path | None:
    """The folder of the run that made a version, if it is next to the registry or in its service's folder."""
    beside = registry.folder.absolute().parent
    places = (beside, ServiceFolder(beside).runs)
    for folder in (place / name for place in places for name in (version.version, version.run)):
        try:
            summary = Summary.model_validate_json((folder / "summary.json").read_bytes())
        except (OSError, ValueError):
            continue
        if summary.run == version.run:
            return folder
    return None
