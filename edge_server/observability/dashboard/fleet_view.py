"""The rows of the fleet, from the newest snapshot or from the run folder alone."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from edge_server.observability.dashboard.run_reader import FolderFacts, KnownDevice
from edge_server.observability.snapshot import DeviceView, Snapshot
from edge_server.rounds.link_bytes import link_bytes
from edge_server.rounds.tiers import tier_of
from edge_server.storage.records import DeviceRecord
from schemas.values import CapabilityProfile, DataCard

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


def fleet_rows(facts: FolderFacts, snapshot: Snapshot | None) -> list[FleetRow]:
    if snapshot is not None:
        return [_live_row(view, facts.known.get(view.device)) for view in snapshot.devices]
    if facts.summary is not None:
        return [_ended_row(record, facts) for record in facts.summary.devices]
    rounds = Counter(name for record in facts.history for name in record.completed)
    rows = [_known_row(known, facts, rounds[known.device]) for known in facts.known.values()]
    return sorted(rows, key=lambda row: (row.tier, row.device))


def _live_row(view: DeviceView, known: KnownDevice | None) -> FleetRow:
    profile, board = view.profile or (known.profile if known else None), view.board
    return FleetRow(
        device=view.device,
        tier=view.tier,
        ratio=view.ratio,
        state=view.state,
        epoch=view.epoch,
        epochs=view.epochs,
        loss=view.loss,
        seen_at=view.seen_at,
        attention=view.attention,
        rounds=view.rounds,
        refusals=sum(view.refused.values()),
        refused=dict(view.refused),
        reason=view.reason,
        celsius=board.celsius if board else None,
        memory_bytes=board.memory_bytes if board else None,
        memory_free_bytes=board.memory_free_bytes if board else None,
        battery=board.battery if board else None,
        uplink_bytes=view.uplink_bytes,
        downlink_bytes=view.downlink_bytes,
        ineligible_because=view.ineligible_because,
        labels=dict(view.labels),
        **_of_data(view.data or (known.data if known else None)),
        **_of_profile(profile),
    )


def _ended_row(record: DeviceRecord, facts: FolderFacts) -> FleetRow:
    """The row of a finished run, in which every device is offline."""
    known = facts.known.get(record.device)
    return FleetRow(
        device=record.device,
        tier=record.tier,
        ratio=record.ratio,
        state=OFFLINE,
        seen_at=known.seen_at if known else None,
        attention=_attention(facts, record.device),
        rounds=record.rounds,
        refusals=record.refusals,
        refused=dict(record.refused),
        uplink_bytes=record.uplink_bytes,
        downlink_bytes=record.downlink_bytes,
        labels=dict(record.labels),
        **(_of_data(known.data) if known else {"examples": record.examples}),
        **_of_profile(known.profile if known else None),
    )


def _known_row(known: KnownDevice, facts: FolderFacts, rounds: int) -> FleetRow:
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


def _journalled_state(known: KnownDevice, facts: FolderFacts) -> str:
    """A device absent from the last planning is offline; without a running server, every device is."""
    planning, under_way = facts.planning, facts.under_way
    if not facts.at_work or planning is None or known.device not in planning.tiers:
        return OFFLINE
    if under_way is None or known.device not in under_way.selected:
        return IDLE
    if known.device not in under_way.examined:
        return TRAINING
    return DONE if under_way.examined[known.device] is None else REFUSED


def _attention(facts: FolderFacts, device: str) -> float | None:
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
        "processor": profile.processor,
        "architecture": profile.architecture,
        "cores": profile.cores,
        "memory_total_bytes": profile.memory_bytes or None,
        "accelerator": profile.accelerator,
    }
