"""The record of a round: what its updates, its tests and its traffic amount to."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from edge_client.data.classes import numbers
from edge_client.data.tasks.learning_task import LearningTask
from edge_client.data.tasks.registry import CLASSIFICATION
from edge_client.pruning.channel_selection import group_scores, ranking
from edge_client.training.results import DEAD_CHANNELS, MAX_DEAD, Evaluation
from edge_server.coordinator.round_warnings import gives_one_answer
from edge_server.coordinator.validation.round_review import RoundReview
from edge_server.rounds.events import CloseRound, RoundClosed
from edge_server.security.secure_aggregation.protocol import COHORT
from edge_server.storage.records import DataStatistics, Distribution, MeasuredDevice, Rejected, RoundRecord
from edge_server.strategy.aggregation.updates import ClientUpdate
from edge_server.strategy.data_statistics import STATISTICS
from edge_server.strategy.explanations import ChannelScores, Observation, Similarity
from edge_server.strategy.pruning.pruners import l1_norms
from edge_server.strategy.strategy import State
from schemas.errors import Reason
from schemas.messages import Update
from schemas.statistics import FEATURES, LABELS, TARGETS
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.arrays import Arrays
from schemas.values import MetricCounts, TrainingMetrics

MAX_ROUNDS = 100
MAX_NUMBERS = 60_000
"""Most scores and listed channels of one observation; mobilenet-v2 with five tiers has half of that."""

Scores = Mapping[str, NDArray[np.float64]]


def is_observed(number: int, rounds: int) -> bool:
    """Whether round `number` of `rounds` is observed: about a hundred are, with the first and the last."""
    step = 2 ** max(0, math.ceil(math.log2(rounds / MAX_ROUNDS)))
    return number in (1, rounds) or number % step == 0


def observation(
    state: State,
    updates: Sequence[ClientUpdate],
    channel_map: ChannelMap,
    specs: Mapping[int, SubModelSpec],
    groups: Sequence[str],
    *,
    ranked: bool,
) -> Observation:
    """The observation of the round that led to `state`; `specs` are the tiers', `groups` the prunable ones.

    With `ranked` channels it has the devices' attention scores, else the magnitude of the weights.
    """
    attention = (_own_orders(updates, channel_map) if state.ordered else state.pruning) if ranked else {}
    scores = attention or _magnitude(state.params, groups, channel_map)
    alike = state.observed.get("similarity")
    return Observation(
        round=state.round,
        groups=_bound_groups(
            {
                name: ChannelScores(
                    layers=channel_map.groups[name].layers,
                    measure="attention" if attention else "magnitude",
                    scores=tuple(float(f"{score:.5g}") for score in scores[name]),
                    kept={
                        tier: spec.kept.get(name, channel_map.groups[name].channels)
                        for tier, spec in specs.items()
                    },
                )
                for name in groups
                if name in scores and np.isfinite(scores[name]).all()
            }
        ),
        similarity=None if alike is None else Similarity.model_validate(alike),
    )


def _own_orders(updates: Sequence[ClientUpdate], channel_map: ChannelMap) -> Scores:
    """By channel of the new model: the mean over devices of the score of their own channel of that rank."""
    found: dict[str, list[NDArray[np.float32]]] = {}
    for update in updates:
        for name, scores in group_scores(update.groups.get("attention", {}), channel_map).items():
            order = ranking(scores, channel_map.groups[name].multiple)
            found.setdefault(name, []).append(scores[list(order)])
    return {name: np.mean(rows, axis=0, dtype=np.float64) for name, rows in found.items()}


def _magnitude(params: Arrays, groups: Sequence[str], channel_map: ChannelMap) -> Scores:
    """The mean over a group's layers of the L1 norm of a channel's weights."""
    norms = l1_norms(dict.fromkeys(groups, 0.0), channel_map, params)
    return {name: scores.astype(np.float64) for name, scores in group_scores(norms, channel_map).items()}


def _bound_groups(groups: Mapping[str, ChannelScores]) -> dict[str, ChannelScores]:
    kept, left = {}, MAX_NUMBERS
    for name, group in groups.items():
        size = len(group.scores) + sum(len(ids) for ids in group.kept.values() if not isinstance(ids, int))
        if size <= left:
            kept[name], left = group, left - size
    return kept


T = TypeVar("T")
MAX_TIMES = 10
MAX_OUTPUTS = 100  # With more outputs the record has no figure for each


@dataclass(frozen=True)
class RoundFigures:
    """Measurements of a round: bytes sent and received, and its duration.

    `traffic` are the counts of the run so far (`RunCounters.traffic`).
    """

    uplink: int = 0
    downlink: int = 0
    duration_s: float = 0.0
    virtual_time_s: float | None = None
    traffic: Mapping[str, Any] = field(default_factory=dict)


NO_FIGURES = RoundFigures()
OBSERVED = ("costs", "suspects", "weights", "attention", "epsilon", "delta", "clip")


def round_record(
    command: CloseRound,
    *,
    fraction: float,
    tested: Mapping[int, Evaluation],
    observed: Mapping[str, Any],
    figures: RoundFigures,
    look: RoundReview,
    task: LearningTask = CLASSIFICATION,
    outputs: Sequence[str] = (),
    columns: Sequence[str] = (),
    tiers: Mapping[str, int] | None = None,
) -> RoundRecord:
    """One line of the history; `tested` is by tier, with the full model as tier 0, and may be empty.

    `observed` has the strategy's weights and attention, `look` the review of all updates; `outputs` are the
    names of the model's outputs, `columns` those of features, as far as they are known. `tiers` are those of
    the devices in a round without training.
    """
    accepted = list(look.counted.values())
    return RoundRecord(
        round=command.round,
        fraction=fraction,
        local_epochs=max(update.metrics.epochs for update in accepted),
        selected=command.selected,
        completed=tuple(name for name in sorted(command.updates) if name not in look.refused),
        dropped=command.dropped,
        rejected=_list_rejected(command, look),
        exaggerated=look.exaggerated,
        harm=look.harm,
        uplink_bytes=figures.uplink,
        downlink_bytes=figures.downlink,
        duration_s=figures.duration_s,
        virtual_time_s=figures.virtual_time_s,
        train_loss=_mean([(u.metrics.train_loss, u.metrics.examples) for u in accepted]),
        client_accuracy=_mean([(u.metrics.accuracy, u.metrics.examples) for u in accepted]),
        client_metrics=client_metrics(task, [update.metrics for update in accepted]),
        own_metrics=pooled_metrics(task, [(u.metrics.own_metrics, u.metrics.examples) for u in accepted]),
        measured={} if tiers is None else _list_measured(command, look.counted, tiers, outputs),
        statistics=data_statistics(observed.get(STATISTICS), outputs, columns),
        staleness={name: late for name, late in sorted(command.staleness.items()) if late},
        one_answer=tuple(
            sorted(name for name, update in look.counted.items() if gives_one_answer(update.metrics.metrics))
        ),
        trained_accuracy=_stated("accuracy", look.counted),
        dead_channels={
            name: share
            for name, update in sorted(look.counted.items())
            if MAX_DEAD <= (share := update.metrics.metrics.get(DEAD_CHANNELS, 0.0)) <= 1
        },
        features=_stated("features", look.counted),
        trained_on=_stated("trained_on", look.counted),
        **{key: observed[key] for key in OBSERVED if key in observed},
        **fields_of_test(tested, outputs),
    )


def fields_of_test(tested: Mapping[int, Evaluation], outputs: Sequence[str]) -> dict[str, Any]:
    """The fields of a record that a test fills, as in `round_record`; none without a test."""
    if not tested:
        return {}
    whole = tested[0]
    return {
        "test_loss": whole.loss,
        "test_accuracy": whole.accuracy,
        "tier_accuracy": {
            tier: test.accuracy for tier, test in tested.items() if tier and test.accuracy is not None
        },
        "test_metrics": whole.metrics,
        "tier_metrics": {tier: test.metrics for tier, test in tested.items() if tier},
        "test_by_output": _by_output(whole, outputs),
        "test_by_class": _by_name(whole.by_class, outputs),
    }


def _stated(field: str, counted: Mapping[str, Update]) -> dict[str, Any]:
    """What devices say in a field of their metrics, of those that say something."""
    found = {name: getattr(update.metrics, field) for name, update in sorted(counted.items())}
    return {name: value for name, value in found.items() if value not in (None, "")}


def _list_rejected(command: CloseRound, look: RoundReview) -> tuple[Rejected, ...]:
    found = {
        name: Rejected(device=name, reason=reason, detail=words, early=early)
        for early, refusals in ((True, command.rejected), (False, look.refused))
        for name, (reason, words) in refusals.items()
    }
    return tuple(rejected for _, rejected in sorted(found.items()))


def _list_measured(
    command: CloseRound, counted: Mapping[str, Update], tiers: Mapping[str, int], outputs: Sequence[str]
) -> dict[str, MeasuredDevice]:
    found = {
        name: measured_device(update.metrics, tiers.get(name, 0), outputs)
        for name, update in sorted(counted.items())
        if update.metrics.measured_on
    }
    of_all = {"devices": len(command.updates)}
    return {
        name: device.model_copy(update=of_all) if name == COHORT else device for name, device in found.items()
    }


def measured_device(metrics: TrainingMetrics, tier: int, outputs: Sequence[str]) -> MeasuredDevice:
    """What a device measured; nobody can have held out more than the examples that are believed."""
    examples = min(metrics.measured_on, metrics.examples)
    counts = [
        (held_out * examples // metrics.measured_on, right * examples // metrics.measured_on)
        for held_out, right in metrics.by_class
    ]
    return MeasuredDevice(
        tier=tier,
        examples=examples,
        metrics=metrics.metrics,
        loss=metrics.received_loss,
        by_class=_by_name(counts, outputs),
        counts=believed_counts(metrics),
    )


def data_statistics(
    found: Mapping[str, Any] | None, outputs: Sequence[str], columns: Sequence[str]
) -> DataStatistics | None:
    if found is None:
        return None
    counts = found.get(LABELS, ())
    parts = {
        part: Distribution.model_validate({name: array.tolist() for name, array in found[part].items()})
        for part in (FEATURES, TARGETS)
        if part in found
    }
    return DataStatistics(
        devices=found["devices"],
        examples=found["examples"],
        columns=tuple(columns),
        features=parts[FEATURES],
        targets=parts.get(TARGETS),
        outputs=tuple(outputs) if TARGETS in parts else (),
        labels=dict(zip(outputs or numbers(len(counts)), map(float, counts), strict=False)),
    )


def client_metrics(task: LearningTask, measured: Sequence[TrainingMetrics]) -> dict[str, float]:
    """As `pooled_metrics`, but the figures of the devices' counts where the task has some."""
    pooled = pooled_metrics(task, [(each.metrics, each.examples) for each in measured])
    for metric in task.metrics:
        known = [each for each in measured if metric.name in each.metrics]
        value = metric.pool_counts([believed_counts(each) for each in known])
        if value is not None and metric.name in pooled:
            pooled[metric.name] = value
    return pooled


def believed_counts(metrics: TrainingMetrics) -> MetricCounts:
    """The counts, in proportion if a device states more examples held out than are believed."""
    examples = min(metrics.measured_on, metrics.examples)
    return tuple(
        tuple(count * examples // max(1, metrics.measured_on) for count in row) for row in metrics.counts
    )


def pooled_metrics(
    task: LearningTask, measured: Sequence[tuple[Mapping[str, float], int]]
) -> dict[str, float]:
    """The figures of all clients' held-out data, weighted by examples; those of none are left out.

    A share beyond 0 and 1 is left out. Another figure counts as at most `MAX_TIMES` the median of those that
    are not 0, so that no client alone decides what is shown.
    """
    pooled = {}
    for metric in task.figures:
        known = [(found[metric.name], examples) for found, examples in measured if metric.name in found]
        if metric.share:
            known = [(value, examples) for value, examples in known if 0 <= value <= 1]
        elif any(value for value, _ in known):
            most = MAX_TIMES * median(abs(value) for value, _ in known if value)
            known = [(min(max(value, -most), most), examples) for value, examples in known]
        value = metric.pool_values([value for value, _ in known], [examples for _, examples in known])
        if value is not None:
            pooled[metric.name] = value
    return pooled


def _by_output(test: Evaluation, outputs: Sequence[str]) -> dict[str, float]:
    found = _by_name(test.by_output, outputs)
    return {name: value for name, value in found.items() if value is not None}


def _by_name(values: Sequence[T], outputs: Sequence[str]) -> dict[str, T]:
    """One value for each output by its name; none where there are too many."""
    if len(values) > MAX_OUTPUTS:
        return {}
    return dict(zip(outputs or numbers(len(values)), values, strict=False))


def _mean(values: Sequence[tuple[float | None, int]]) -> float | None:
    """The mean of the known values weighted by examples; None if there are none."""
    known = [(value, weight) for value, weight in values if value is not None and weight > 0]
    total = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / total if total else None


def closed_event(record: RoundRecord) -> RoundClosed:
    """The event that a round is closed, with what the comparison of its updates found."""
    refused = {
        each.device: (Reason(each.reason), each.detail)
        for each in record.rejected
        if each.detail and not each.early
    }
    return RoundClosed(record.round, record.diverged, refused, record.exaggerated)
