"""Snapshot, summary and workload of a run, computed from the federation's state and its counters."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from edge_server.config.config import Config
from edge_server.config.units import duration_text
from edge_server.observability.counters import Durations, PhaseClock, RunCounters
from edge_server.observability.figures import ACCURACY, best_of, leading_metric, tested_figures
from edge_server.observability.snapshot import DeviceView, ServerParts, Snapshot, Workload
from edge_server.rounds import events, fleet, machine, quarantine
from edge_server.rounds.participant import Participant, Status
from edge_server.rounds.state import Phase
from edge_server.storage.records import DeviceRecord, StartedFrom, Summary, TrainedShare, UndoneRecord
from schemas.values import BoardState, CapabilityProfile

TierOf = Callable[[fleet.Device], int]
NOT_YET_CLAIMED = frozenset({Status.OFFERED, Status.ACCEPTED})
"""Statuses in which the device's own report is more precise: the server knows of no update yet."""


def make_snapshot(
    federation: machine.Federation,
    tally: RunCounters,
    *,
    tier: TierOf,
    ratios: Sequence[float],
    now: float,
    began: float,
    no_link: str,
    tested_on: str = "",
    load: Workload | None = None,
    summary: Summary | None = None,
) -> Snapshot:
    """The run at `now` (seconds of the same clock as `began`)."""
    by_tier = _by_tier(federation, tier)
    devices = [
        _device_view(device, federation, tally, tier=number, ratio=ratios[number - 1])
        for number, device in by_tier
    ]
    deadline = federation.deadline
    return Snapshot(
        federation=federation.name,
        run=federation.run,
        phase=federation.phase,
        round=federation.round,
        rounds=0 if federation.rules.endless else federation.rules.rounds,
        elapsed_s=now - began,
        deadline_in_s=None if deadline is None else max(0.0, deadline - now),
        devices=tuple(devices),
        history=tuple(tally.history),
        delivered={
            device.name: _device_record(device, tally, federation, tier=number, ratio=ratios[number - 1])
            for number, device in by_tier
            if device.name in tally.deliveries
        },
        summary=summary,
        notes=tuple(tally.notes),
        no_link=no_link,
        tested_on=tested_on,
        waits_for=_waits_for(federation, now),
        load=load or Workload(),
    )


def _waits_for(federation: machine.Federation, now: float) -> str:
    if federation.phase is not Phase.WAITING:
        return ""
    opening, left = federation.rules.opening, federation.not_before - now
    if opening.begins(federation.round) and left >= 1:
        return f"the next opening in {duration_text(left)}"
    demand = opening.demand(federation.round, federation.fleet)
    return "" if demand.met else str(demand)


def _by_tier(federation: machine.Federation, tier: TierOf) -> list[tuple[int, fleet.Device]]:
    """Every device with its tier, by tier and name."""
    devices = ((tier(device), device) for device in federation.fleet.devices.values())
    return sorted(devices, key=lambda pair: (pair[0], pair[1].name))


def _device_view(
    device: fleet.Device, federation: machine.Federation, tally: RunCounters, *, tier: int, ratio: float
) -> DeviceView:
    participant = federation.participants.by_name.get(device.name)
    reported = tally.telemetry.get(device.name)
    counted = federation.counted.get(device.name)
    out = quarantine.quarantine_end(federation, device.name) is not None
    begun = participant.assignment.task.round if participant else None
    link = tally.over_link(device.name)
    current = reported if participant is not None and reported and reported.round == begun else None
    at_work = current if participant is not None and participant.status in NOT_YET_CLAIMED else None
    return DeviceView(
        device=device.name,
        tier=tier,
        ratio=ratio,
        state=_state(device, participant, at_work.phase if at_work else None, out=out),
        epoch=at_work.epoch if at_work else None,
        epochs=at_work.epochs if at_work else None,
        loss=current.loss if current else None,
        downlink_bytes=link.received,
        uplink_bytes=link.sent,
        reason=str(participant.reason or "") if participant else "",
        accuracy=counted.metrics.accuracy if counted else None,
        rounds=tally.rounds[device.name],
        refused=tally.refused_of(device.name),
        attention=_attention(tally, device.name),
        seen_at=tally.seen.get(device.name),
        profile=device.profile,
        data=device.data,
        board=(reported.board if reported else None) or _board_at_birth(device.profile),
        ineligible_because=_kept_out(device, federation),
        labels=device.labels,
    )


def _state(device: fleet.Device, participant: Participant | None, reported: str | None, *, out: bool) -> str:
    if not device.alive:
        return "offline"
    if participant is None:
        at_rest = "incompatible" if device.misfit else "idle"
        return "quarantined" if out else at_rest
    return reported or str(participant.status)


def _kept_out(device: fleet.Device, federation: machine.Federation) -> str:
    """Why the device is not asked: its labels, or its owner's rules."""
    if device.outside:
        return f"its labels do not match {federation.fleet.membership}"
    return device.ineligible_because


def _attention(tally: RunCounters, device: str) -> float | None:
    """The device's score after the last closed round, where the selection uses one."""
    score = tally.history[-1].attention.get(device) if tally.history else None
    return score if isinstance(score, float) else None


def _board_at_birth(profile: CapabilityProfile) -> BoardState | None:
    """The board's readings when the device connected; None without any."""
    known = (profile.celsius, profile.battery, profile.memory_free_bytes)
    return None if known == (None, None, None) else _board_state(*known)


@lru_cache(maxsize=4096)
def _board_state(celsius: float | None, battery: float | None, free: int | None) -> BoardState:
    # Cached: asked four times a second for every device that has sent no telemetry.
    return BoardState(celsius=celsius, battery=battery, memory_free_bytes=free)


def _device_record(
    device: fleet.Device, tally: RunCounters, federation: machine.Federation, *, tier: int, ratio: float
) -> DeviceRecord:
    delivery = tally.deliveries.get(device.name)
    link = tally.over_link(device.name)
    figures = delivery.metrics.model_dump() if delivery else {}
    wanted = {key: value for key, value in figures.items() if key in DeviceRecord.model_fields}
    return DeviceRecord(
        device=device.name,
        tier=tier,
        ratio=ratio,
        downlink_bytes=link.received,
        uplink_bytes=link.sent,
        rounds=tally.rounds[device.name],
        refusals=sum(tally.refused_of(device.name).values()),
        refused=tally.refused_of(device.name),
        quarantined_until=quarantine.quarantine_end(federation, device.name),
        labels=device.labels,
        **wanted,
    )


def make_summary(
    federation: machine.Federation,
    tally: RunCounters,
    end: events.EndRun,
    *,
    config: Config,
    tier: TierOf,
    parameters: int,
    onnx: Mapping[int, str],
    duration_s: float,
    started_from: StartedFrom | None = None,
    trained: TrainedShare | None = None,
) -> Summary:
    last = tally.history[-1] if tally.history else None
    ratios = config.tiers.levels
    return Summary(
        federation=federation.name,
        run=federation.run,
        recipe=config.recipe.name if config.recipe else None,
        outcome=end.outcome,
        detail=end.detail,
        rounds=len(tally.history),
        duration_s=duration_s,
        model=config.model.name,
        parameters=parameters,
        **_quality(federation, tally),
        uplink_bytes=tally.uplink.total(),
        downlink_bytes=tally.downlink.total(),
        epsilon=last.epsilon if last else None,
        delta=last.delta if last else None,
        devices=tuple(
            _device_record(device, tally, federation, tier=number, ratio=ratios[number - 1])
            for number, device in _by_tier(federation, tier)
        ),
        onnx=onnx,
        undone=tuple(
            UndoneRecord(round=undone.round, back_to=undone.round - 1, left_out=undone.left_out)
            for undone in federation.undone
        ),
        started_from=started_from,
        trained=trained,
    )


def _quality(federation: machine.Federation, tally: RunCounters) -> dict[str, Any]:
    """How good the models of the rounds are that count, as fields of the summary."""
    given_up = {undone.round for undone in federation.undone}
    kept = [record for record in tally.history if record.round not in given_up]
    accuracies, metric = tested_figures(kept, ACCURACY), leading_metric(kept)
    return {
        "test_accuracy": accuracies[-1] if accuracies else None,
        "best_accuracy": max(accuracies, default=None),
        "test_metrics": next((record.test_metrics for record in reversed(kept) if record.test_metrics), {}),
        "best_metric": best_of(metric, tested_figures(kept, metric)),
        "client_metrics": kept[-1].client_metrics if kept else {},
        "own_metrics": kept[-1].own_metrics if kept else {},
    }


def make_workload(
    federation: machine.Federation,
    tally: RunCounters,
    config: Config,
    *,
    phases: PhaseClock,
    work: Durations,
    inbox: int = 0,
    jobs: int = 0,
    outgoing: int = 0,
    unheard: int = 0,
    parts: ServerParts | None = None,
) -> Workload:
    """The current workload; the caller passes the lengths of its queues, and a server its parts."""
    refusals: Counter[str] = Counter()
    for (_, reason), count in tally.refusals.items():
        refusals[reason] += count
    privacy = config.privacy.gaussian
    return Workload(
        inbox=inbox,
        jobs=jobs,
        uploads=federation.participants.count({Status.WAITING}),
        outgoing=outgoing,
        unheard=unheard,
        uplink_bytes=tally.uplink.total(),
        downlink_bytes=tally.downlink.total(),
        refusals=dict(refusals),
        phases=phases.durations.histograms(),
        work=work.histograms(),
        deadline_s=federation.rules.deadline_s,
        budget=None if privacy is None else privacy.budget,
        parts=parts,
    )
