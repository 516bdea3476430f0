"""Statistics of the devices' data as rows: mean, deviation, quantiles of each feature, examples per class."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edge_server.config.units import clean, count_text, counted_text, number_text, percent_text
from edge_server.storage.records import DataStatistics, Distribution, RoundRecord
from edge_server.storage.run_files import read_history
from edge_server.storage.run_folder import RunFolder

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
SHOWN = (0.05, 0.5, 0.95)  # Quantiles in tables; JSON has all
FEATURE_COLUMNS = ("feature", "mean", "std", "least", *(f"{share:.0%}" for share in SHOWN), "most")
LABEL_COLUMNS = ("class", "examples", "share")


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


@dataclass(frozen=True)
class StatisticsTexts:
    """Statistics for people: what they are of, rows of `FEATURE_COLUMNS` and of `LABEL_COLUMNS`."""

    about: str
    features: list[list[str]]
    labels: list[list[str]]


def newest_statistics(history: Sequence[RoundRecord]) -> DataStatistics | None:
    found = (record.statistics for record in reversed(history))
    return next((statistics for statistics in found if statistics is not None), None)


def last_statistics(folder: Path) -> DataStatistics | None:
    """The newest statistics of the run in a folder; None without any, or without a run."""
    history = RunFolder(folder).history
    return newest_statistics(read_history(history)) if history.is_file() else None


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


def as_texts(found: DataStatistics) -> StatisticsTexts:
    rows = statistics_rows(found)
    examples, devices = counted_text(round(found.examples), "example"), counted_text(found.devices, "device")
    return StatisticsTexts(
        f"{examples} of {devices}, in the units of their data" + _precision(rows),
        [[clean(row.name), *_cells(row)] for row in rows],
        [
            [clean(name), count_text(round(count)), percent_text(count / found.examples)]
            for name, count in found.labels.items()
        ],
    )


def _precision(rows: Sequence[FeatureRow]) -> str:
    """How far quantiles may be off; empty before the round that asks for histograms."""
    if not any(row.quantiles for row in rows):
        return ""
    off = max((row.quantile_error / row.std for row in rows if row.std > 0), default=0.0)
    return f"; quantiles are off by at most {off:.2g} standard deviations"


def _cells(row: FeatureRow) -> list[str]:
    shown = [row.quantiles.get(share) for share in SHOWN]
    return [number_text(value) for value in (row.mean, row.std, row.least, *shown, row.most)]


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
