"""Statistics of the devices' data as rows: mean, deviation, quantiles of each feature, examples per class."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edge_server.config.units import UNKNOWN
from edge_server.storage.data_statistics import DataStatistics, Distribution
from edge_server.storage.records import RoundRecord
from edge_server.storage.run_folder import RunFolder

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
SHOWN = (0.05, 0.5, 0.95)
"""Quantiles in tables; JSON has all."""
FEATURE_COLUMNS = ("mean", "std", "least", *(f"{share:.0%}" for share in SHOWN), "most")
ERROR = "quantiles are off by at most 1/32 of a standard deviation"
"""Half a bin of a histogram that reaches `WIDTH` deviations to both sides."""


@dataclass(frozen=True)
class FeatureRow:
    """Figures of one feature in the units of the data.

    A quantile q is the smallest value that a share q of the values does not exceed. It is off by at most
    `quantile_error`, half a bin of its histogram.
    """

    name: str
    count: float
    mean: float
    std: float
    least: float
    most: float
    quantiles: Mapping[float, float]
    quantile_error: float


def last_statistics(folder: Path) -> DataStatistics | None:
    """The statistics of the newest round that has some; None without any, or without a run."""
    history = RunFolder(folder).history
    lines = history.read_text().splitlines() if history.is_file() else ()
    found = (RoundRecord.model_validate_json(line).statistics for line in reversed(lines))
    return next((statistics for statistics in found if statistics is not None), None)


def feature_rows(found: Distribution, names: Sequence[str], else_called: str = "") -> Iterator[FeatureRow]:
    """A row per feature; one without a name is `else_called` and its number from 1."""
    numbered = (f"{else_called}{place + 1}" for place in range(len(found.count)))
    called = names if len(names) == len(found.count) else [*numbered]
    for place, (name, count) in enumerate(zip(called, found.count, strict=True)):
        known = _quantiles(found, place)
        yield FeatureRow(
            name,
            count,
            found.mean[place],
            math.sqrt(found.variance[place]),
            found.least[place],
            found.most[place],
            {share: value for share, (value, _) in known.items()},
            max((error for _, error in known.values()), default=0.0),
        )


def statistics_rows(found: DataStatistics) -> list[FeatureRow]:
    """The rows of all features, then those of the numbers to learn."""
    return [*feature_rows(found.features, found.columns), *_target_rows(found)]


def _target_rows(found: DataStatistics) -> list[FeatureRow]:
    return [] if found.targets is None else [*feature_rows(found.targets, found.outputs, "target ")]


def feature_cells(row: FeatureRow) -> list[str]:
    """The figures of a feature, in the order of `FEATURE_COLUMNS`."""
    shown = [row.quantiles.get(share, math.nan) for share in SHOWN]
    numbers = (row.mean, row.std, row.least, *shown, row.most)
    return [UNKNOWN if math.isnan(value) else f"{value:.3g}" for value in numbers]


def as_json(found: DataStatistics) -> dict[str, Any]:
    """Everything for programs, without the histograms."""
    return {
        "devices": found.devices,
        "examples": found.examples,
        "features": [*map(asdict, feature_rows(found.features, found.columns))],
        "targets": [*map(asdict, _target_rows(found))],
        "labels": dict(found.labels),
    }


def _quantiles(found: Distribution, place: int) -> dict[float, tuple[float, float]]:
    """Each quantile and by how much it may be off: the middle of the bin that has it."""
    if not found.histogram:
        return {}
    counts = np.cumsum(found.histogram[place])
    low, high, bins = found.low[place], found.high[place], len(counts) - 2
    inner = low + (high - low) / bins * np.arange(bins + 1)
    edges = [min(found.least[place], low), *inner, max(found.most[place], high)]
    return {share: _middle(edges, int(np.searchsorted(counts, share * counts[-1]))) for share in QUANTILES}


def _middle(edges: list[float], place: int) -> tuple[float, float]:
    below, above = edges[place], edges[place + 1]
    return float((below + above) / 2), float((above - below) / 2)
