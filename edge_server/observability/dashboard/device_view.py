"""The JSON value of one device: its rounds with reasons, its compact model, its profile."""

from collections.abc import Mapping, Sequence

from edge_server.observability.dashboard.run_reader import FolderFacts
from edge_server.observability.dashboard.run_view import Json, history_of
from edge_server.observability.snapshot import Snapshot
from edge_server.storage.records import RoundRecord
from edge_server.strategy.explanations import DeviceChoice

MAX_ROUNDS = 1000  # Maximum rounds in the value; the newest ones

Choices = Sequence[tuple[int, DeviceChoice]]
Verdicts = Sequence[tuple[int, str | None]]


def device_value(
    name: str, facts: FolderFacts, snapshot: Snapshot | None, choices: Choices, verdicts: Verdicts
) -> Json | None:
    """The value of `/api/device/NAME`; None for an unknown device.

    `choices` and `verdicts` come from the journal, by round: why the device was chosen or not, and the
    refusal reasons of its updates.
    """
    view = next((view for view in snapshot.devices if view.device == name), None) if snapshot else None
    record = _record(name, facts, snapshot)
    known = facts.known.get(name)
    profile = (view.profile if view else None) or (known.profile if known else None)
    if view is None and record is None and known is None:
        return None
    return {
        "device": name,
        "rounds": _rounds(name, facts, snapshot, choices, verdicts),
        "delivery": record,
        "profile": profile.model_dump(mode="json") if profile else None,
    }


def _rounds(
    name: str, facts: FolderFacts, snapshot: Snapshot | None, choices: Choices, verdicts: Verdicts
) -> list[Json]:
    closed = {record.round: record for record in history_of(facts, snapshot)}
    why = dict(choices)  # the last planning of a round counts
    refused = {number: reason for number, reason in verdicts if reason is not None}
    under_way = {facts.under_way.round: facts.under_way.selected} if facts.under_way else {}
    numbers = sorted({*closed, *why, *under_way})[-MAX_ROUNDS:]
    return [
        _round(name, number, closed.get(number), why.get(number), refused, name in under_way.get(number, ()))
        for number in numbers
    ]


def _round(
    name: str,
    number: int,
    record: RoundRecord | None,
    choice: DeviceChoice | None,
    refused: Mapping[int, str],
    asked: bool,
) -> Json:
    selected = name in record.selected if record else asked or (choice is not None and choice.chosen)
    rejected = {refusal.device: refusal.reason for refusal in record.rejected} if record else {}
    reason = rejected.get(name) or refused.get(number)
    return {
        "round": number,
        "selected": selected,
        "because": choice.because if choice else "",
        "score": choice.score if choice else None,
        "outcome": _outcome(name, record, reason, selected=selected),
        "reason": reason or "",
        "weight": record.weights.get(name) if record else None,
        "staleness": record.staleness.get(name) if record else None,
    }


def _outcome(name: str, record: RoundRecord | None, reason: str | None, *, selected: bool) -> str:
    if record is not None and name in record.completed:
        return "counted"
    if reason is not None:
        return "refused"
    if not selected:
        return "not chosen"
    return "under way" if record is None else "dropped"


def _record(name: str, facts: FolderFacts, snapshot: Snapshot | None) -> Json | None:
    """The device's record, known once its model is delivered or the run is over."""
    if snapshot is not None and name in snapshot.delivered:
        return snapshot.delivered[name].model_dump(mode="json")
    summary = (snapshot.summary if snapshot else None) or facts.summary
    found = next((row for row in summary.devices if row.device == name), None) if summary else None
    return found.model_dump(mode="json") if found else None
