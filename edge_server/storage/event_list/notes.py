"""Notes of a server: a round was closed, a run is over."""

from __future__ import annotations

from edge_server.rounds.event_entry import EventKind
from edge_server.rounds.events import EndRun, Note
from edge_server.storage.records import RoundRecord


def round_closed(record: RoundRecord) -> Note:
    """A round was aggregated."""
    counted = f"{len(record.completed)} of {len(record.selected)} updates"
    tested = "" if record.test_accuracy is None else f", accuracy {record.test_accuracy:.1%}"
    return Note(f"round {record.round} closed", detail=counted + tested, kind=EventKind.ROUND, routine=True)


def run_ended(end: EndRun) -> Note:
    """The run is over."""
    return Note(f"run {end.outcome}", detail=end.detail, kind=EventKind.ROUND, routine=True)
