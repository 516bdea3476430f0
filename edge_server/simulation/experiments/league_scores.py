"""The scores of a league's runs, and differences of two rows with intervals over paired seeds.

Intervals are 95 % intervals of the mean difference by bootstrap over the seeds (Efron 1979, the percentile
method).
"""

import itertools
import json
import math
import statistics
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge_client.data import dataset, shapes
from edge_client.data.tasks.learning_task import Metric
from edge_client.data.tasks.registry import learning_task
from edge_client.storage.atomic_files import write_synced
from edge_client.training.evaluation import logits
from edge_server.config.config import Config
from edge_server.config.test_data import load_test_data, model_spec
from edge_server.observability.dashboard.grad_cam_process import tier_model
from edge_server.observability.figures import ACCURACY, leading_metric, tested_figures
from edge_server.observability.report.costs import averaging_window, first_reached
from edge_server.simulation import inputs, population
from edge_server.simulation.experiments.cells import EndedRun
from edge_server.storage.records import RoundRecord
from edge_server.strategy.aggregation.updates import is_statistic
from schemas.tensors.files import FileGroups

FILE = "client-accuracies.json"
Floats = NDArray[np.float64]


def client_accuracies(config: Config, folder: Path) -> dict[str, float]:
    """The accuracy of every client of an ended run, 0 to 1, by name; kept in the run folder.

    {} for a run without models, for tasks without classes, and for a run whose tiers have normalisation of
    their own, which the global model in the run folder lacks.
    """
    if not learning_task(config.model.task).exclusive:
        return {}
    kept = folder / FILE
    if kept.exists():
        return dict(json.loads(kept.read_text()))
    versions = sorted((folder / "models").glob("round-*"), key=lambda path: int(path.name.split("-")[1]))
    if not versions or _has_own_normalisation(config, versions[-1]):
        return {}
    config = inputs.as_simulated(config)
    (labels, origins), test = _labels(_data_key(config)), _test_data(_data_key(config))
    devices = population.make_population(config, labels, origins)
    by_tier = {
        tier: class_accuracies(logits(tier_model(config, test, versions[-1], tier), test.inputs()), test)
        for tier in {device.tier for device in devices}
    }
    result = {
        device.name: of_mix(
            by_tier[device.tier], np.bincount(labels[device.train], minlength=test.num_classes)
        )
        for device in devices
        if len(device.train)
    }
    write_synced(kept, json.dumps(result).encode())
    return result


def _has_own_normalisation(config: Config, version: Path) -> bool:
    rules = config.make_strategy().groups
    names = FileGroups(version / "state.safetensors")["model"]
    return any(rule.owns or rule.measured for rule in rules) and any(map(is_statistic, names))


def class_accuracies(outputs: NDArray[np.float32], data: dataset.LabelledData) -> Floats:
    """The share of right answers among each class's examples [classes]; not a number for absent classes."""
    right = outputs.argmax(axis=1) == data.labels
    counts = np.bincount(data.labels, minlength=data.num_classes)
    with np.errstate(invalid="ignore"):
        shares: Floats = np.bincount(data.labels, weights=right, minlength=data.num_classes) / counts
    return shares


def of_mix(accuracies: Floats, counts: NDArray[np.int64]) -> float:
    """The mean of the classes' accuracies, weighted by `counts`, without untested classes."""
    known = ~np.isnan(accuracies) & (counts > 0)
    return float(np.average(accuracies[known], weights=counts[known])) if known.any() else float("nan")


def _data_key(config: Config) -> str:
    """What decides which data a run has, as the JSON of a configuration."""
    return config.model_dump_json(include={"data", "model", "recipe"}, by_alias=True, exclude_none=True)


@lru_cache(maxsize=4)
def _labels(key: str) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
    data = inputs.training_data(Config.model_validate_json(key))
    return data.labels, data.origins


@lru_cache(maxsize=4)
def _test_data(key: str) -> dataset.LabelledData:
    config = Config.model_validate_json(key)
    data = load_test_data(config)
    assert data is not None
    return shapes.fit_data(data, model_spec(config, data).input_shape)


EXACT = 6  # With this number of seeds or fewer, every resample is computed; with more, `DRAWN` are drawn
DRAWN = 10_000
ABOVE, LEVEL, BELOW = "above", "level with", "below"


@dataclass(frozen=True)
class Score:
    """One run: figures of its leading `metric`, means over the last tested rounds; bytes sent in all rounds.

    `whole` is the global model's figure; None if no tier trains the full model. `tiers` are the figures
    of the tiers' own sub-models, the weakest first. `reached` has the first round at which the global model
    reached each target, or None. `diverged` counts rounds that were given up. `further` are other figures of
    the global model. `clients` are the accuracies of the clients' own sub-models on their own mix of classes.
    """

    whole: float | None
    tiers: tuple[float, ...]
    uplink_bytes: int
    downlink_bytes: int
    reached: Mapping[float, int | None] = field(default_factory=dict)
    diverged: int = 0
    clients: tuple[float, ...] = ()
    metric: Metric = ACCURACY
    further: Mapping[Metric, float] = field(default_factory=dict)

    @property
    def mean_tier(self) -> float | None:
        return statistics.fmean(self.tiers) if self.tiers else None

    @property
    def worst_tier(self) -> float | None:
        return self._worst(self.tiers)

    @property
    def mean_client(self) -> float | None:
        return statistics.fmean(self.clients) if self.clients else None

    @property
    def worst_client(self) -> float | None:
        return self._worst(self.clients)

    def _worst(self, values: Sequence[float]) -> float | None:
        return (min if self.metric.higher_is_better else max)(values, default=None)


Scores = Mapping[tuple[str, str], Mapping[int, Score]]  # By row and column, then by seed
Measure = Callable[[Score], float | None]
Clients = Callable[[EndedRun], Mapping[str, float]]
MEASURES: Mapping[str, Measure] = {
    "whole model": lambda score: score.whole,
    "mean tier": lambda score: score.mean_tier,
}


@dataclass(frozen=True)
class Difference:
    """By how much one row is better than another: the mean over the seeds that both have, and its interval.

    In points of shares, else in the metric's unit.
    """

    mean: float
    low: float
    high: float
    share: bool = True

    @property
    def verdict(self) -> str:
        """Whether the first row is above or below the second, or the interval holds 0."""
        return ABOVE if self.low > 0 else BELOW if self.high < 0 else LEVEL

    def __str__(self) -> str:
        written = "+.1f" if self.share else "+.3g"
        if math.isinf(self.low):
            return f"{self.mean:{written}} (one seed)"
        return f"{self.mean:{written}} [{self.low:{written}}, {self.high:{written}}]"


def league_scores(
    done: Iterable[EndedRun],
    *,
    average_rounds: int,
    average_share: float | None = None,
    figures: Collection[str] = (),
    clients: Clients = lambda ended: {},
) -> dict[tuple[str, str], dict[int, Score]]:
    """The score of every finished run, over its last `average_rounds` rounds or that share of them.

    `figures` are metrics besides the leading one, and `clients` gives a run's clients' accuracies by name.
    """
    scores: dict[tuple[str, str], dict[int, Score]] = {}
    for ended in done:
        if ended.history and not ended.failure:
            cell = ended.run.cell
            config = cell.config()
            window = averaging_window(
                config.federation.rounds, average_rounds=average_rounds, average_share=average_share
            )
            # The last round may have measured what earlier models lacked.
            measured = bool(config.make_strategy().measuring) and ended.history[-1].train_loss is None
            score = _score(
                ended.history,
                window=1 if measured else window,
                full=0.0 in config.tiers.levels,
                targets=cell.targets,
                further=[m for m in learning_task(config.model.task).metrics if m.name in figures],
            )
            score = replace(score, clients=tuple(clients(ended).values()))
            scores.setdefault((cell.row, cell.column), {})[ended.run.seed] = score
    return scores


def _score(
    history: Sequence[RoundRecord],
    *,
    window: int,
    full: bool,
    targets: Sequence[float] = (),
    further: Sequence[Metric] = (),
) -> Score:
    metric = leading_metric(history)
    last = [record for record in history if record.round > history[-1].round - window]
    whole, by_tier = tested_figures(last, metric), dict[int, list[float]]()
    for record in last:
        for tier, figures in record.tier_metrics.items():
            by_tier.setdefault(tier, []).append(figures[metric.name])
    tiers = [statistics.fmean(figures) for _, figures in sorted(by_tier.items())]
    return Score(
        statistics.fmean(whole) if whole and full else None,
        tuple(tiers),
        sum(record.uplink_bytes for record in history),
        sum(record.downlink_bytes for record in history),
        {target: _round_reached(history, target, metric) for target in targets} if full else {},
        sum(record.diverged for record in history),
        metric=metric,
        further={each: statistics.fmean(own) for each in further if (own := tested_figures(last, each))},
    )


def _round_reached(history: Sequence[RoundRecord], target: float, metric: Metric) -> int | None:
    reached = first_reached(history, 0, target, metric)
    return None if reached is None else reached.round


def difference(
    first: Mapping[int, Score], second: Mapping[int, Score], measure: Measure
) -> Difference | None:
    """By how much the first row is better; None without a common seed that has the measure."""
    seeds = sorted(first.keys() & second.keys())
    pairs = [(measure(first[seed]), measure(second[seed])) for seed in seeds]
    known = [(one, other) for one, other in pairs if one is not None and other is not None]
    if not known:
        return None
    metric = first[seeds[0]].metric
    values = [_scale(metric) * (one - other) for one, other in known]
    return Difference(statistics.fmean(values), *interval(values), share=metric.share)


def _scale(metric: Metric) -> int:
    """Points per 1 of a figure; negative where less is better."""
    return (100 if metric.share else 1) * (1 if metric.higher_is_better else -1)


@cache
def _resamples(count: int) -> NDArray[np.int64]:
    """The places [resamples, count] of `count` values that each resample has."""
    if count <= EXACT:
        return np.array(list(itertools.product(range(count), repeat=count)))
    return np.random.default_rng(0).integers(count, size=(DRAWN, count))


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % bootstrap interval of the mean of `values`, the same in every call; infinite for one value."""
    count = len(values)
    if count == 1:
        return -math.inf, math.inf
    means = np.array(values)[_resamples(count)].mean(axis=1)
    # Outwards to the next mean: with two seeds the interval is that of both values.
    return (
        float(np.quantile(means, 0.025, method="lower")),
        float(np.quantile(means, 0.975, method="higher")),
    )
