"""The scores of a league's runs, and differences of two rows with intervals over paired seeds.

Intervals are 95 % intervals of the mean difference by bootstrap over the seeds (Efron 1979, the percentile
method).
"""

import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from edge_server.observability.report.measures import averaging_window, first_reached
from edge_server.simulation.experiments.one_run import EndedRun
from edge_server.storage.records import RoundRecord

EXACT = 6
"""With this number of seeds or fewer, every resample is computed; with more, `DRAWN` are drawn."""
DRAWN = 10_000
ABOVE, LEVEL, BELOW = "above", "level with", "below"


@dataclass(frozen=True)
class Score:
    """One run: accuracies 0 to 1, means over the last tested rounds; bytes sent in all rounds.

    `whole` is the global model's accuracy; None if no tier trains the full model. `tiers` are the accuracies
    of the tiers' own sub-models, the weakest first. `reached` has the first round at which the global model
    reached each target accuracy, or None. `diverged` counts rounds that were given up.
    `clients` are the accuracies of the clients' own sub-models on their own mix of classes.
    """

    whole: float | None
    tiers: tuple[float, ...]
    uplink_bytes: int
    downlink_bytes: int
    reached: Mapping[float, int | None] = field(default_factory=dict)
    diverged: int = 0
    clients: tuple[float, ...] = ()

    @property
    def mean_tier(self) -> float | None:
        """The mean over the tiers."""
        return statistics.fmean(self.tiers) if self.tiers else None

    @property
    def worst_tier(self) -> float | None:
        """The accuracy of the worst tier."""
        return min(self.tiers, default=None)

    @property
    def mean_client(self) -> float | None:
        """The mean over the clients."""
        return statistics.fmean(self.clients) if self.clients else None

    @property
    def worst_client(self) -> float | None:
        """The accuracy of the client with the lowest one."""
        return min(self.clients, default=None)


Scores = Mapping[tuple[str, str], Mapping[int, Score]]
"""By row and column, then by seed."""
Measure = Callable[[Score], float | None]
Clients = Callable[[EndedRun], Mapping[str, float]]
MEASURES: Mapping[str, Measure] = {
    "whole model": lambda score: score.whole,
    "mean tier": lambda score: score.mean_tier,
}


@dataclass(frozen=True)
class Difference:
    """The mean difference of two rows over the seeds that both have, and its interval, in points."""

    mean: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """Whether the first row is above or below the second, or the interval holds 0."""
        return ABOVE if self.low > 0 else BELOW if self.high < 0 else LEVEL

    def __str__(self) -> str:
        if math.isinf(self.low):
            return f"{self.mean:+.1f} (one seed)"
        return f"{self.mean:+.1f} [{self.low:+.1f}, {self.high:+.1f}]"


def league_scores(
    done: Iterable[EndedRun],
    *,
    average_rounds: int,
    average_share: float | None = None,
    clients: Clients = lambda ended: {},
) -> dict[tuple[str, str], dict[int, Score]]:
    """The score of every finished run, over its last `average_rounds` rounds or that share of them.

    `clients` gives a run's clients' accuracies by name.
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
            )
            score = replace(score, clients=tuple(clients(ended).values()))
            scores.setdefault((cell.row, cell.column), {})[ended.run.seed] = score
    return scores


def _score(
    history: Sequence[RoundRecord], *, window: int, full: bool, targets: Sequence[float] = ()
) -> Score:
    last = [record for record in history if record.round > history[-1].round - window]
    whole = [record.test_accuracy for record in last if record.test_accuracy is not None]
    tested = [record.tier_accuracy for record in last if record.tier_accuracy]
    tiers = (
        [statistics.fmean(accuracies[tier] for accuracies in tested) for tier in sorted(tested[-1])]
        if tested
        else []
    )
    return Score(
        statistics.fmean(whole) if whole and full else None,
        tuple(tiers),
        sum(record.uplink_bytes for record in history),
        sum(record.downlink_bytes for record in history),
        {target: _reached(history, target) for target in targets} if full else {},
        sum(record.diverged for record in history),
    )


def _reached(history: Sequence[RoundRecord], target: float) -> int | None:
    """The round in which the target is reached, as in the other kinds of experiment."""
    reached = first_reached(history, 0, target)
    return None if reached is None else reached.round


def difference(
    first: Mapping[int, Score], second: Mapping[int, Score], measure: Measure
) -> Difference | None:
    """The first row minus the second, in points; None without a common seed that has the measure."""
    pairs = [(measure(first[seed]), measure(second[seed])) for seed in sorted(first.keys() & second.keys())]
    values = [100 * (one - other) for one, other in pairs if one is not None and other is not None]
    if not values:
        return None
    low, high = interval(values)
    return Difference(statistics.fmean(values), low, high)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % bootstrap interval of the mean of `values`, the same in every call; infinite for one value."""
    count = len(values)
    if count == 1:
        return -math.inf, math.inf
    if count <= EXACT:
        places = np.array(list(itertools.product(range(count), repeat=count)))
    else:
        places = np.random.default_rng(0).integers(count, size=(DRAWN, count))
    means = np.array(values)[places].mean(axis=1)
    # Outwards to the next mean: with two seeds the interval is that of both values.
    return (
        float(np.quantile(means, 0.025, method="lower")),
        float(np.quantile(means, 0.975, method="higher")),
    )
