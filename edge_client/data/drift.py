"""A test for drift: whether new examples differ from those that a device knows.

Each statistic of an example (a feature's mean, a model's loss) is compared by the two-sample test of
Kolmogorov and Smirnov; the smallest p-value times the number of statistics (Bonferroni) decides. If examples
are independent, at most a share `alarm_rate` of the tests raises an alarm without a drift. Overlapping
windows and slow signals are not independent, and raise more alarms.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_client.data.changes import Marks
from edge_client.data.drift_alarm import DriftAlarm
from edge_client.data.local import LocalData
from edge_client.data.partition import HELD, NEW, TRAINED
from edge_client.storage.state_file import NotPlainFile, read_plain, write_plain
from schemas.values import DriftFinding

# What a device remembers of its examples when it is started again: which are held out, which are new.

Chosen = NDArray[np.bool_]


def _none() -> Marks:
    return np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class ExampleRecord:
    """Marks of the examples that are held out, in the training part, there at the last training, and compared
    by a drift test since; and the alarm about the data, if one stands.
    """

    held: Marks = field(default_factory=_none)
    train: Marks = field(default_factory=_none)
    known: Marks = field(default_factory=_none)
    tested: Marks = field(default_factory=_none)
    alarm: DriftAlarm | None = None

    def sides(self, marks: Marks) -> NDArray[np.int64]:
        """The earlier side of each example [N], for `split_indices`; equal examples are on one side."""
        return np.select([among(self.held, marks), among(self.train, marks)], [HELD, TRAINED], NEW)

    def is_new(self, marks: Marks) -> Chosen:
        """Which examples [N] came since the last training."""
        return ~among(self.known, marks)

    def is_untested(self, marks: Marks) -> Chosen:
        """Which new examples [N] no drift test has compared."""
        return self.is_new(marks) & ~among(self.tested, marks)

    def split(self, train: Marks, held: Marks) -> "ExampleRecord":
        """The record with these two sides; examples that are gone are forgotten."""
        both = np.concatenate([train, held])
        return replace(
            self, train=train, held=held, known=_still(self.known, both), tested=_still(self.tested, both)
        )

    def after_training(self, received_loss: float | None) -> "ExampleRecord":
        """The record once the device has trained a model of this loss on all that is there."""
        alarm = self.alarm and self.alarm.after_training(received_loss)
        return replace(self, known=np.concatenate([self.train, self.held]), tested=_none(), alarm=alarm)

    def after_test(self, marks: Marks, found: DriftFinding | None) -> "ExampleRecord":
        """The record once a drift test has compared these examples; what it `found` is a new alarm."""
        alarm = self.alarm if found is None else DriftAlarm(found)
        return replace(self, tested=np.concatenate([self.tested, marks]), alarm=alarm)


def among(known: Marks, marks: Marks) -> Chosen:
    """Which of the `marks` [N] are known; `numpy.isin` takes 2 MB of a small board."""
    found = set(known.tolist())
    return np.fromiter((mark in found for mark in marks.tolist()), np.bool_, len(marks))


def _still(marks: Marks, there: Marks) -> Marks:
    return marks[among(there, marks)]


def write_record(path: Path, record: ExampleRecord, *, about: str) -> None:
    """Save a record; `about` names the data that it is of."""
    marks = {name: getattr(record, name) for name in ("held", "train", "known", "tested")}
    alarm = record.alarm and {**asdict(record.alarm), "finding": record.alarm.finding.model_dump()}
    write_plain(path, {"about": about, "marks": marks, "alarm": alarm})


def read_record(path: Path, *, about: str) -> ExampleRecord | None:
    """The saved record; None if there is none, or if it is of other data."""
    try:
        found = read_plain(path)
        if found["about"] != about:
            return None
        alarm = found["alarm"]
        alarm = alarm and DriftAlarm(**{**alarm, "finding": DriftFinding(**alarm["finding"])})
        return ExampleRecord(**found["marks"], alarm=alarm)
    except (NotPlainFile, OSError, LookupError, TypeError, ValueError):
        return None


Values = NDArray[Any]
MAX_CHANNELS = 32
TERMS = 100  # terms of the series of Kolmogorov's distribution; far fewer matter


@dataclass(frozen=True, eq=False)
class DriftResult:
    """The marks of the new examples that were compared, and what was found if they differ."""

    marks: Marks
    finding: DriftFinding | None = None


DriftTest = Callable[[LocalData, ExampleRecord], DriftResult | None]
"""Compares the untested new examples with the known ones; None while there are too few."""


def kolmogorov_smirnov(first: Values, second: Values) -> float:
    """The p-value that two samples [N] and [M] are of one distribution.

    Two-sided, by Kolmogorov's limit distribution, which is cautious for small samples and for equal values.
    """
    points = np.concatenate([first, second])
    shares = (
        np.searchsorted(np.sort(values), points, side="right") / len(values) for values in (first, second)
    )
    distance = float(np.abs(np.subtract(*shares)).max())
    scaled = distance * np.sqrt(len(first) * len(second) / (len(first) + len(second)))
    if scaled < 0.2:
        # The probability is 1 within double precision, and the series does not converge.
        return 1.0
    j = np.arange(1, TERMS + 1)
    series = 2 * np.sum((-1.0) ** (j - 1) * np.exp(-2 * (j * scaled) ** 2))
    return float(np.clip(series, 0.0, 1.0))


def feature_statistics(images: Values) -> dict[str, Values]:
    """The mean and deviation [N] of each channel of examples [N, C, ...]; of rows [N, C] the values."""
    flat = images.reshape(*images.shape[:2], -1)[:, :MAX_CHANNELS].astype(np.float64)
    found = {f"mean of channel {c}": flat[:, c].mean(-1) for c in range(flat.shape[1])}
    if flat.shape[-1] > 1:
        found |= {f"deviation of channel {c}": flat[:, c].std(-1) for c in range(flat.shape[1])}
    return found


def most_different(pairs: Mapping[str, tuple[Values, Values]]) -> tuple[str, float]:
    """The name of the pair of samples that differs most, and its p-value among all pairs."""
    found = {name: kolmogorov_smirnov(known, fresh) for name, (known, fresh) in pairs.items()}
    name = min(found, key=lambda pair: found[pair])
    return name, min(1.0, found[name] * len(found))
