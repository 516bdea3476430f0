"""The rows of the fleet, from the newest snapshot or from the run folder alone."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edge_server.observability.dashboard import run_reader, run_view
from edge_server.observability.snapshot import DeviceView, Snapshot
from edge_server.rounds.fleet import tier_of
from edge_server.rounds.link_bytes import link_bytes
from edge_server.storage.records import DeviceRecord, RoundRecord
from edge_server.strategy.explanations import DeviceChoice
from schemas.base import fields_of
from schemas.values import CapabilityProfile, DataCard

MAX_ROUNDS = 1000  # Maximum rounds in the value; the newest ones

Choices = Sequence[tuple[int, DeviceChoice]]
Verdicts = Sequence[tuple[int, str | None]]


def device_value(
    name: str, facts: run_reader.FolderFacts, snapshot: Snapshot | None, choices: Choices, verdicts: Verdicts
) -> run_view.Json | None:
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
    name: str, facts: run_reader.FolderFacts, snapshot: Snapshot | None, choices: Choices, verdicts: Verdicts
) -> list[run_view.Json]:
    closed = {record.round: record for record in run_view.history_of(facts, snapshot)}
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
) -> run_view.Json:
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


def _record(name: str, facts: run_reader.FolderFacts, snapshot: Snapshot | None) -> run_view.Json | None:
    """The device's record, known once its model is delivered or the run is over."""
    if snapshot is not None and name in snapshot.delivered:
        return snapshot.delivered[name].model_dump(mode="json")
    summary = (snapshot.summary if snapshot else None) or facts.summary
    found = next((row for row in summary.devices if row.device == name), None) if summary else None
    return found.model_dump(mode="json") if found else None


OFFLINE, IDLE, TRAINING, DONE, REFUSED = "offline", "idle", "training", "done", "refused"


@dataclass(frozen=True)
class FleetRow:
    """One device, None or empty where unknown. Times in seconds since 1970, `refused` counts by reason."""

    device: str
    tier: int
    ratio: float | None
    state: str
    board: str = ""
    processor: str = ""
    architecture: str = ""
    cores: int | None = None
    memory_total_bytes: int | None = None
    accelerator: str | None = None
    epoch: int | None = None
    epochs: int | None = None
    loss: float | None = None
    seen_at: float | None = None
    attention: float | None = None
    rounds: int = 0
    refusals: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""
    celsius: float | None = None
    memory_bytes: int | None = None
    memory_free_bytes: int | None = None
    battery: float | None = None
    uplink_bytes: int = 0
    downlink_bytes: int = 0
    ineligible_because: str = ""
    examples: int | None = None
    new_examples: int | None = None
    drift: str = ""
    broken_files: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


OF_RECORD = ("device", "tier", "ratio", "rounds", "refused", "uplink_bytes", "downlink_bytes", "labels")
OF_TRAINING = ("state", "epoch", "epochs", "loss", "seen_at", "attention", "reason", "ineligible_because")
OF_BOARD = ("celsius", "memory_bytes", "memory_free_bytes", "battery")


def fleet_rows(facts: run_reader.FolderFacts, snapshot: Snapshot | None) -> list[FleetRow]:
    if snapshot is not None:
        return [_live_row(view, facts.known.get(view.device)) for view in snapshot.devices]
    if facts.summary is not None:
        return [_ended_row(record, facts) for record in facts.summary.devices]
    rounds = Counter(name for record in facts.history for name in record.completed)
    rows = [_known_row(known, facts, rounds[known.device]) for known in facts.known.values()]
    return sorted(rows, key=lambda row: (row.tier, row.device))


def _live_row(view: DeviceView, known: run_reader.KnownDevice | None) -> FleetRow:
    profile, board = view.profile or (known.profile if known else None), view.board
    return FleetRow(
        refusals=sum(view.refused.values()),
        **fields_of(view, *OF_RECORD, *OF_TRAINING),
        **(fields_of(board, *OF_BOARD) if board else {}),
        **_of_data(view.data or (known.data if known else None)),
        **_of_profile(profile),
    )


def _ended_row(record: DeviceRecord, facts: run_reader.FolderFacts) -> FleetRow:
    """The row of a finished run, in which every device is offline."""
    known = facts.known.get(record.device)
    return FleetRow(
        state=OFFLINE,
        seen_at=known.seen_at if known else None,
        attention=_attention(facts, record.device),
        refusals=record.refusals,
        **fields_of(record, *OF_RECORD),
        **(_of_data(known.data) if known else {"examples": record.examples}),
        **_of_profile(known.profile if known else None),
    )


def _known_row(known: run_reader.KnownDevice, facts: run_reader.FolderFacts, rounds: int) -> FleetRow:
    """The row from the journal alone, where another process runs the federation or none does."""
    planning, levels = facts.planning, facts.config.tiers.levels if facts.config else ()
    tier = (planning.tiers if planning else {}).get(known.device)
    tier = tier or (tier_of(known.profile, len(levels)) if levels else 1)
    refused = facts.refused.get(known.device, {})
    state = _journalled_state(known, facts)
    link = link_bytes(facts.traffic, known.device)
    return FleetRow(
        device=known.device,
        tier=tier,
        ratio=levels[tier - 1] if tier <= len(levels) else None,
        state=state,
        seen_at=known.seen_at,
        attention=_attention(facts, known.device),
        rounds=rounds,
        refusals=sum(refused.values()),
        refused=refused,
        uplink_bytes=link.sent,
        downlink_bytes=link.received,
        reason=(planning.examined.get(known.device) or "") if planning and state == REFUSED else "",
        **_of_data(known.data),
        **_of_profile(known.profile),
    )


def _journalled_state(known: run_reader.KnownDevice, facts: run_reader.FolderFacts) -> str:
    """A device absent from the last planning is offline; without a running server, every device is."""
    planning, under_way = facts.planning, facts.under_way
    if not facts.at_work or planning is None or known.device not in planning.tiers:
        return OFFLINE
    if under_way is None or known.device not in under_way.selected:
        return IDLE
    if known.device not in under_way.examined:
        return TRAINING
    return DONE if under_way.examined[known.device] is None else REFUSED


def _attention(facts: run_reader.FolderFacts, device: str) -> float | None:
    """The device's attention (AdaFL) in the last round that recorded any."""
    for record in reversed(facts.history):
        if record.attention:
            found = record.attention.get(device)
            return float(found) if isinstance(found, int | float) else None
    return None


def _of_data(card: DataCard | None) -> dict[str, Any]:
    if card is None:
        return {}
    found = card.drift
    return {
        "examples": card.examples,
        "new_examples": card.new,
        "drift": f"{found.statistic} of {found.examples} examples, p = {found.p_value:.2g}" if found else "",
        "broken_files": card.skipped.in_words() if card.skipped else "",
    }


def _of_profile(profile: CapabilityProfile | None) -> dict[str, Any]:
    if profile is None:
        return {}
    return {
        "board": profile.machine or profile.processor,
        **fields_of(profile, "processor", "architecture", "cores", "accelerator"),
        "memory_total_bytes": profile.memory_bytes or None,
    }
