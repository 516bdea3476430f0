"""Rows of the matrix: a kind of file, what writes it, and what it means."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_client.data.source_options import Split

Array = NDArray[Any]
Labels = Sequence[str] | Array
PATHS = ("training", "infer", "serve")
"""The ways of a file into the product."""
NOTHING: Mapping[str, str] = MappingProxyType({})
FOLDER = "FOLDER"
"""In a source, the folder that the writer fills."""


@dataclass(frozen=True, eq=False)
class Truth:
    """What a file means: inputs [N, ...] before normalisation, and N names of classes or numbers [N, L].

    Pictures and sounds have the largest value 1, columns of tables their own units. `tolerance` is the
    largest difference: 1e-6 for what is stored exactly, more where a lossy coder or a filter is between.
    """

    inputs: Array
    labels: Labels
    tolerance: float = 1e-6
    task: str = "classification"


@dataclass(frozen=True)
class Row:
    """A kind of file: `write` fills a folder, and returns the truth unless the row has it already.

    `source` is what a user states, with `FOLDER` in it. `requests` is the pattern of the files whose bytes
    are sent to `serve`; empty for kinds that no request carries. `intended` has a part of the message, with
    the remedy, for each path that refuses the file on purpose. `paths` are those that the file is tried on,
    `split` is the part that training reads, and `asked` what `infer` reads if that is another source.
    """

    kind: str
    writer: str
    source: str
    write: Callable[[Path], Truth | None]
    truth: Truth | None = None
    requests: str = ""
    intended: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    paths: Sequence[str] = PATHS
    split: Split = "train"
    asked: str = ""


class Rows:
    """A family of rows, in the order of their definition."""

    def __init__(self) -> None:
        self._rows: list[Row] = []

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def row(
        self, kind: str, writer: str, source: str, **more: Any
    ) -> Callable[[Callable[[Path], Truth | None]], Callable[[Path], Truth | None]]:
        """Add the function below as a row; `more` are further fields of it."""

        def add(write: Callable[[Path], Truth | None]) -> Callable[[Path], Truth | None]:
            self._rows.append(Row(kind, writer, source, write, **more))
            return write

        return add


def refused(why: str) -> dict[str, str]:
    """All paths refuse a file, with this in their messages."""
    return dict.fromkeys(PATHS, why)


def make_old(path: Path) -> None:
    """Let a file be of an hour ago, so that nobody records into it now."""
    past = time.time() - 3600
    os.utime(path, (past, past))


def as_units(inputs: Array, scale: float) -> Array:
    """Inputs as a truth has them: divided by their preprocessing's scale."""
    return inputs.astype(np.float64) / scale
