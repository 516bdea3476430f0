"""Files of recordings as one table: each file is a series of rows, with its class in the column `label`."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_client.data.broken_files import ReadFiles, read_each
from edge_client.data.series_rows import in_series
from edge_client.data.tables import ROW, Row
from schemas.errors import ConfigError

log = logging.getLogger(__name__)

LABEL, FILE = "label", "file"
PARTS: Mapping[str, Sequence[str]] = {"train": ("training", "train"), "test": ("testing", "test")}
"""Folders for training and for tests."""


@dataclass(frozen=True, eq=False)
class Recording:
    """Signals of one length [N] by name, their units, and their step in seconds where the file states it."""

    signals: Mapping[str, NDArray[Any]]
    units: Mapping[str, str]
    step: float | None = None
