"""What a device remembers of its examples when it is started again: which are held out, which are new."""

from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge_client.data.changes import Marks
from edge_client.data.partition import HELD, NEW, TRAINED
from edge_client.storage.state_file import NotPlainFile, read_plain, write_plain

Chosen = NDArray[np.bool_]


def _none() -> Marks:
    return np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class ExampleRecord:
    """Marks of the examples that are held out, in the training part, there at the last training, and compared
    by a drift test since.
    """

    held: Marks = field(default_factory=_none)
    train: Marks = field(default_factory=_none)
    known: Marks = field(default_factory=_none)
    tested: Marks = field(default_factory=_none)

    def sides(self, marks: Marks) -> NDArray[np.int64]:
        """The earlier side of each example [N], for `split_indices`; equal examples are on one side."""
        return np.select([_among(self.held, marks), _among(self.train, marks)], [HELD, TRAINED], NEW)

    def is_new(self, marks: Marks) -> Chosen:
        """Which examples [N] came since the last training."""
        return ~_among(self.known, marks)

    def is_untested(self, marks: Marks) -> Chosen:
        """Which new examples [N] no drift test has compared."""
        return self.is_new(marks) & ~_among(self.tested, marks)

    def split(self, train: Marks, held: Marks) -> "ExampleRecord":
        """The record with these two sides; examples that are gone are forgotten."""
        both = np.concatenate([train, held])
        return replace(
            self, train=train, held=held, known=_still(self.known, both), tested=_still(self.tested, both)
        )

    def after_training(self) -> "ExampleRecord":
        """The record once the device has trained on all that is there."""
        return replace(self, known=np.concatenate([self.train, self.held]), tested=_none())

    def after_test(self, marks: Marks) -> "ExampleRecord":
        """The record once a drift test has compared these examples."""
        return replace(self, tested=np.concatenate([self.tested, marks]))


def _among(known: Marks, marks: Marks) -> Chosen:
    """Which of the `marks` [N] are known; `numpy.isin` takes 2 MB of a small board."""
    found = set(known.tolist())
    return np.fromiter((mark in found for mark in marks.tolist()), np.bool_, len(marks))


def _still(marks: Marks, there: Marks) -> Marks:
    """Those of the marks whose examples are still there."""
    return marks[_among(there, marks)]


def write_record(path: Path, record: ExampleRecord, *, about: str) -> None:
    """Save a record; `about` names the data that it is of."""
    marks = {name.name: getattr(record, name.name) for name in fields(record)}
    write_plain(path, {"about": about, "marks": marks})


def read_record(path: Path, *, about: str) -> ExampleRecord | None:
    """The saved record; None if there is none, or if it is of other data."""
    try:
        found = read_plain(path)
        return ExampleRecord(**found["marks"]) if found["about"] == about else None
    except (NotPlainFile, OSError, KeyError, TypeError):
        return None
