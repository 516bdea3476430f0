"""The JSON value of a run: pure functions of the folder's facts and the newest snapshot, if any."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import islice
from typing import Any

from edge_client.data.tasks.learning_task import LearningTask
from edge_client.data.tasks.registry import CLASSIFICATION, learning_task
from edge_client.data.tasks.words import reference_text
from edge_client.models.registry import entry
from edge_client.pruning.channel_selection import group_ratios, prefix_spec
from edge_client.pruning.index_sets import expected_shapes
from edge_server.config.config import Config
from edge_server.observability import data_statistics, figures
from edge_server.observability.dashboard.run_reader import FolderFacts, count_parameters
from edge_server.observability.kept_features import KEPT_COLUMNS, describe_kept, kept_features
from edge_server.observability.report.figure_tables import class_figures, newest_counts
from edge_server.observability.snapshot import Snapshot, Workload
from edge_server.storage.records import DeviceRecord, RoundRecord, Summary, TrainedShare
from schemas.submodel import ChannelMap

Json = dict[str, Any]
FLOAT32 = 4
ENDED, SUSPENDED = "ended", "suspended"
"""Phases in addition to those of `edge_server.rounds.state`; no process runs a suspended run."""
MAX_COUNTED = 14  # Columns of the table by class
MAX_DEVICES = 100  # Rows of the table of features
CUT_OFF = "the run was interrupted: the command that began it resumes it"
SAME_MOMENT_S = 1.0  # A deadline that moved by less (seconds) is the same deadline, computed again


def run_value(
    facts: FolderFacts, snapshot: Snapshot | None, *, now: float, live: bool, events: int = 0
) -> Json:
    """The value of `/api/run` without the history; `now` in seconds since 1970.

    `events` is the number of the newest change of the event list.
    """
    summary = (snapshot.summary if snapshot else None) or facts.summary
    config, shown = facts.config, snapshot or _from_folder(facts)
    return {
        "federation": shown.federation,
        "run": shown.run or facts.run,
        "recipe": config.recipe.name if config and config.recipe else None,
        "model": config.model.name if config else None,
        "seed": config.federation.seed if config else None,
        "rounds": config.federation.rounds if config else shown.rounds,
        "round": shown.round,
        "waits_for": shown.waits_for if live else "",
        "phase": ENDED if summary else shown.phase if live else SUSPENDED,
        "outcome": summary.outcome if summary else None,
        "detail": summary.detail if summary else "" if live else CUT_OFF,
        "live": live and summary is None,
        "began_at": _began_at(facts, snapshot, now),
        "now": now,
        "deadline_at": None if summary else _deadline_at(shown, now),
        "no_link": shown.no_link,
        "parts": None if shown.load.parts is None else asdict(shown.load.parts),
        "notes": list(shown.notes),
        "warnings": figures.warning_texts(history_of(facts, snapshot), summary.devices if summary else ()),
        "parameters": summary.parameters if summary else facts.parameters,
        "trained": _trained_texts(summary.trained if summary else shown.trained),
        "tiers": tier_values(facts, _delivered_models(facts, snapshot)),
        "privacy": _privacy(history_of(facts, snapshot)),
        **_bytes(facts, snapshot, summary),
        "metric": _metric(history_of(facts, snapshot), config),
        "by_class": _by_class(history_of(facts, snapshot), config),
        "statistics": _statistics(history_of(facts, snapshot)),
        "features": _features(history_of(facts, snapshot)),
        "virtual": is_simulated(facts, snapshot),
        "events": events,
    }


def keep_times(before: Json, now: Json) -> Json:
    """The new value, with the earlier deadline and beginning where they have not changed."""
    old, new = before["deadline_at"], now["deadline_at"]
    same = old is not None and new is not None and abs(new - old) < SAME_MOMENT_S
    began_at = now["began_at"] if before["began_at"] is None else before["began_at"]
    return {**now, "deadline_at": old if same else new, "began_at": began_at}


def history_of(facts: FolderFacts, snapshot: Snapshot | None) -> Sequence[RoundRecord]:
    return facts.history if snapshot is None else snapshot.history


def round_values(facts: FolderFacts, history: Iterable[RoundRecord]) -> list[Json]:
    """Closed rounds as JSON values, each with its relative cost."""
    whole = _everyones_bytes(facts)
    return [
        {
            **record.model_dump(mode="json", exclude={"statistics"}),
            "cost_relative": cost_relative(record, whole),
        }
        for record in history
    ]


def cost_relative(record: RoundRecord, whole: int | None) -> float | None:
    """A round's bytes divided by `whole`, those of a full exchange (AdaFL's communication cost)."""
    return None if not whole else (record.uplink_bytes + record.downlink_bytes) / whole


def _everyones_bytes(facts: FolderFacts) -> int | None:
    """Bytes of a round in which every client receives and sends one full model in float32."""
    if facts.config is None or facts.parameters is None:
        return None
    return 2 * FLOAT32 * facts.parameters * facts.config.clients.num_clients


def is_simulated(facts: FolderFacts, snapshot: Snapshot | None) -> bool:
    if snapshot is not None and snapshot.virtual_s is not None:
        return True
    return any(record.virtual_time_s is not None for record in history_of(facts, snapshot)[:1])


def tier_values(facts: FolderFacts, delivered: Mapping[str, DeviceRecord]) -> list[Json]:
    """Each tier's sub-model, as known from its devices, its ONNX file or its shapes."""
    if facts.config is None:
        return []
    sizes = tier_parameters(facts.config, facts.channels)
    reported = {record.tier: record for record in delivered.values() if record.parameters is not None}
    return [
        {
            "tier": tier,
            "ratio": ratio,
            "parameters": reported[tier].parameters if tier in reported else sizes.get(tier),
            "macs": reported[tier].macs if tier in reported else None,
            "onnx_bytes": facts.onnx.get(tier),
            "onnx": f"/onnx/tier-{tier}.onnx" if tier in facts.onnx else None,
        }
        for tier, ratio in enumerate(facts.config.tiers.levels, start=1)
    ]


def tier_parameters(config: Config, channels: ChannelMap | None) -> dict[int, int]:
    """Trainable parameters of each tier; the count does not depend on which channels it keeps."""
    if channels is None:
        return {}
    network = replace(entry(config.model.name), multiple=config.tiers.keep_multiple)
    specs = {
        tier: prefix_spec(group_ratios(network, ratio, channels), channels)
        for tier, ratio in enumerate(config.tiers.ratios, start=1)
    }
    return {tier: count_parameters(expected_shapes(spec, channels)) for tier, spec in specs.items()}


def _delivered_models(facts: FolderFacts, snapshot: Snapshot | None) -> Mapping[str, DeviceRecord]:
    if snapshot is not None:
        return snapshot.delivered
    return {record.device: record for record in facts.summary.devices} if facts.summary else {}


def _from_folder(facts: FolderFacts) -> Snapshot:
    """The state of the run as far as the folder alone shows it."""
    config, summary, under_way = facts.config, facts.summary, facts.under_way
    return Snapshot(
        federation=config.federation.name if config else "",
        run=(summary.run if summary else None) or facts.run or facts.path.name,
        phase="training" if under_way else "waiting",
        round=under_way.round if under_way else facts.last_closed,
        rounds=config.federation.rounds if config else 0,
        elapsed_s=summary.duration_s if summary else 0.0,
    )


def _began_at(facts: FolderFacts, snapshot: Snapshot | None, now: float) -> float | None:
    if facts.began_at is not None:
        return facts.began_at
    return None if snapshot is None else now - snapshot.elapsed_s


def _deadline_at(shown: Snapshot, now: float) -> float | None:
    """The deadline in seconds since 1970; None for a simulation, whose deadline is in virtual time."""
    left = None if shown.virtual_s is not None else shown.deadline_in_s
    return None if left is None else now + left


def _bytes(facts: FolderFacts, snapshot: Snapshot | None, summary: Summary | None) -> dict[str, int]:
    """All payload bytes of the server in this run, those between and after rounds included."""
    counted: Summary | Workload | None = summary or (snapshot.load if snapshot else None)
    if counted is not None:
        up, down = counted.uplink_bytes, counted.downlink_bytes
    else:
        up, down = (sum(facts.traffic.get(way, {}).values()) for way in ("uplink", "downlink"))
    return {"received_bytes": up, "sent_bytes": down}


def _metric(history: Sequence[RoundRecord], config: Config | None) -> Json:
    metric, where = figures.leading_metric(history, _task(config)), figures.where_measured(history)
    newest = next((found for r in reversed(history) if (found := figures.figures_there(r, where))), {})
    return {
        "name": metric.name,
        "share": metric.share,
        "higher": metric.higher_is_better,
        "where": where,
        "naive": reference_text(newest),
    }


def _task(config: Config | None) -> LearningTask:
    return learning_task(config.model.task) if config else CLASSIFICATION


def _by_class(history: Sequence[RoundRecord], config: Config | None) -> Json | None:
    """The newest counts by class: a row per class, a column for the test data, all devices and the first few.

    None if no round has counted any.
    """
    task = _task(config)
    number, counted = newest_counts(history)
    shown = dict(islice(counted.items(), MAX_COUNTED))
    if not shown:
        return None
    columns = [class_figures(counts) for counts in shown.values()]
    names = dict.fromkeys(name for column in columns for name in column)
    rows = [
        {"name": name, "cells": [asdict(column[name]) if name in column else None for column in columns]}
        for name in names
    ]
    return {"round": number, "things": task.counted_things, "columns": [*shown], "rows": rows}


def _statistics(history: Sequence[RoundRecord]) -> Json | None:
    found = data_statistics.newest_statistics(history)
    if found is None:
        return None
    heads = {"feature_heads": data_statistics.FEATURE_COLUMNS, "label_heads": data_statistics.LABEL_COLUMNS}
    return {**heads, **asdict(data_statistics.as_texts(found))}


def _features(history: Sequence[RoundRecord]) -> Json | None:
    """What frozen layers computed on each of the first devices, and what is kept; None without features."""
    devices = kept_features(history)
    rows = [device.as_row() for device in devices[:MAX_DEVICES]]
    return {"about": describe_kept(devices), "heads": KEPT_COLUMNS, "rows": rows} if rows else None


def _trained_texts(share: TrainedShare | None) -> list[str]:
    """What devices train of the network, and what is frozen; empty if they train everything."""
    if share is None:
        return []
    frozen = share.describe_frozen()
    return [f"devices train {share.in_words()}", *([f"frozen: {frozen}"] if frozen else [])]


def _privacy(history: Sequence[RoundRecord]) -> Json | None:
    last = history[-1] if history else None
    return None if last is None or last.epsilon is None else {"epsilon": last.epsilon, "delta": last.delta}
