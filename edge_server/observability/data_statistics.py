"""Statistics of the devices' data as rows: mean, deviation, quantiles of each feature, examples per class."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edge_server.config.units import UNKNOWN, si_text
from edge_server.storage.data_statistics import DataStatistics, Distribution
from edge_server.storage.records import RoundRecord
from edge_server.storage.run_folder import RunFolder

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
SHOWN = (0.05, 0.5, 0.95)
"""Quantiles in tables; JSON has all."""
FEATURE_COLUMNS = ("values", "mean", "std", "least", *(f"{share:.0%}" for share in SHOWN), "most", "+-")


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
    """The statistics of the newest round that has some; None without any."""
    lines = RunFolder(folder).history.read_text().splitlines()
    found = (RoundRecord.model_validate_json(line).statistics for line in reversed(lines))
    return next((statistics for statistics in found if statistics is not None), None)


def feature_rows(found: Distribution, names: str) -> Iterator[FeatureRow]:
    """A row per feature, called by its number from 1 after `names`."""
    for place, count in enumerate(found.count):
        known = _quantiles(found, place)
        yield FeatureRow(
            f"{names}{place + 1}",
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
    targets = [] if found.targets is None else feature_rows(found.targets, "target ")
    return [*feature_rows(found.features, ""), *targets]


def feature_cells(row: FeatureRow) -> list[str]:
    """The figures of a feature, in the order of `FEATURE_COLUMNS`."""
    shown = [row.quantiles.get(share, math.nan) for share in SHOWN]
    numbers = (row.mean, row.std, row.least, *shown, row.most)
    texts = (UNKNOWN if math.isnan(value) else f"{value:.4g}" for value in numbers)
    return [si_text(row.count), *texts, f"{row.quantile_error:.2g}"]


def as_json(found: DataStatistics) -> dict[str, Any]:
    """Everything for programs, without the histograms."""
    targets = [] if found.targets is None else [*map(asdict, feature_rows(found.targets, "target "))]
    return {
        "devices": found.devices,
        "examples": found.examples,
        "features": [*map(asdict, feature_rows(found.features, ""))],
        "targets": targets,
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
