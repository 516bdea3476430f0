"""The device's data: read at the start, and again before a task if it has changed."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edge_client.data.changes import Mark, mark_of_examples, mark_of_files, marks_of_images
from edge_client.data.dataset import LabelledData
from edge_client.data.local import LocalData
from edge_client.data.partition import HELD, NEW, TRAINED, Partition, holdout, share, split_indices
from edge_client.data.sources import files_of, is_function, load_source
from schemas.errors import ConfigError

log = logging.getLogger(__name__)

FUNCTION_SHARE = 10
"""Pause between two calls of a data function, as a multiple of its duration."""


WHOLE = Partition("iid")


@dataclass(frozen=True)
class DataChoice:
    """The data source, this device's share of it (`index` from 0), and the fraction to hold out."""

    source: str
    data_root: Path | None = None
    partition: Partition = WHOLE
    index: int = 0
    count: int = 1
    hold_out: float = 0.2
    seed: int = 0

    @property
    def description(self) -> str:
        """The source, and the share if there are several."""
        return self.source if self.count == 1 else f"{self.source} (share {self.index + 1}/{self.count})"


class LocalSource:
    """Reads the chosen data; used by one thread at a time."""

    def __init__(self, choice: DataChoice, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._choice, self._clock = choice, clock
        self._files = files_of(choice.source, data_root=choice.data_root)
        self._mark: Mark | None = None
        self._next_call = 0.0
        self._data: LocalData | None = None

    def read(self) -> LocalData:
        """Read the data for the first time, log its size; raises `ConfigError` if it cannot be read."""
        self._mark = mark_of_files(self._files) if self._files is not None else None
        mine = self._mine(self._load())
        self._data = LocalData(*holdout(mine, fraction=self._choice.hold_out, seed=self._choice.seed))
        self._log("")
        if (name := mine.only_class) is not None:
            log.warning(
                "%s: all %d examples are of one class, '%s'", self._choice.description, len(mine), name
            )
        return self._data

    def reload_if_changed(self) -> LocalData | None:
        """Return the data if it has changed, else None.

        Examples that were held out stay so. If the data cannot be read, such as a half-written file, the
        earlier data stays in use and a warning is logged.
        """
        try:
            found = self._changed()
        except ConfigError as error:
            log.warning("the data has changed and cannot be used, the earlier data is kept: %s", error)
            return None
        if found is None or self._data is None:
            return None
        self._data = self._grown(self._data, self._mine(found))
        self._log("changed: ")
        return self._data

    def _changed(self) -> LabelledData | None:
        if self._files is not None:
            mark = mark_of_files(self._files)
            if mark == self._mark:
                return None
            # Taken before reading, so that a write meanwhile counts as another change.
            self._mark = mark
            return self._load()
        if not is_function(self._choice.source) or self._clock() < self._next_call:
            return None
        before = self._mark
        data = self._load()
        return None if self._mark == before else data

    def _load(self) -> LabelledData:
        began = self._clock()
        data = load_source(self._choice.source, data_root=self._choice.data_root)
        if is_function(self._choice.source):
            self._mark = mark_of_examples(data)
            self._next_call = self._clock() + FUNCTION_SHARE * (self._clock() - began)
        return data

    def _mine(self, data: LabelledData) -> LabelledData:
        chosen = self._choice
        return share(data, chosen.partition, index=chosen.index, count=chosen.count, seed=chosen.seed)

    def _grown(self, before: LocalData, mine: LabelledData) -> LocalData:
        """The current examples, each on the side (training, held out) it was on before."""
        held, trained = (frozenset(marks_of_images(part.images)) for part in (before.held_out, before.train))
        sides = [
            HELD if mark in held else TRAINED if mark in trained else NEW
            for mark in marks_of_images(mine.images)
        ]
        train, held_out = split_indices(
            np.arange(len(mine)),
            mine.strata,
            fraction=self._choice.hold_out,
            seed=self._choice.seed,
            before=np.asarray(sides, np.int64),
        )
        return LocalData(mine.subset(train), mine.subset(held_out))

    def _log(self, prefix: str) -> None:
        assert self._data is not None
        train, held = len(self._data.train), len(self._data.held_out)
        log.info(
            "%s: %s%d examples, %d trained on, %d held out",
            *(self._choice.description, prefix, train + held, train, held),
        )
