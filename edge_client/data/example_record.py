"""What a device remembers of its examples when it is started again: which are held out, which are new."""

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge_client.data.changes import Marks
from edge_client.data.drift_alarm import DriftAlarm
from edge_client.data.partition import HELD, NEW, TRAINED
from edge_client.storage.state_file import NotPlainFile, read_plain, write_plain
from schemas.values import DriftFinding

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
