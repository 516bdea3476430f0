"""Files of recordings as one table: each file is a series of rows, with its class in the column `label`."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from edge_client.data import class_folders, said_once
from edge_client.data import class_folders as broken_files
from edge_client.data.tables.series_rows import in_series
from edge_client.data.tables.table import ROW, Row, Table
from schemas.errors import ConfigError
from schemas.values import SkippedFiles

FILE, LABEL = "file", "label"


@dataclass(frozen=True, eq=False)
class Recording:
    """The signals [N] of a file by name, their units, and the milliseconds of a step, if it states them."""

    signals: Mapping[str, NDArray[Any]]
    units: Mapping[str, str]
    step: float | None = None

    def about(self, names: Iterable[str]) -> str:
        """The step, and the units of some signals, in which all files must agree."""
        steps = "signals" if self.step is None else f"readings every {self.step:g} ms"
        return ", ".join(
            [steps, *(f"{name} in {self.units[name]}" for name in names if self.units.get(name))]
        )


@dataclass(frozen=True, eq=False)
class RecordingTable(Table):
    """A file, or a folder's with one of the `endings`, each read by `read`; `label` is "" without a class."""

    path: Path
    endings: Collection[str]
    read: Callable[[Path], Recording]
    label: Callable[[Path], str]

    @contextmanager
    def open_rows(self) -> Iterator[Iterator[Row]]:
        """The header, then the rows, numbered by their files; `ConfigError` for files of different steps."""
        yield self._rows()

    def place(self, number: int) -> str:
        return str(self._paths[number - 1]) if number else str(self.path)

    def options(self, stated: Mapping[str, str]) -> Mapping[str, str]:
        """The options of this table: no window reaches from one file to the next."""
        return in_series(stated, ignore=(FILE, LABEL))

    @property
    def units(self) -> Mapping[str, str]:
        """The units of the signals, as the first file states them."""
        return self._read.values[0].units

    @property
    def skipped_files(self) -> SkippedFiles | None:
        return self._read.skipped

    @cached_property
    def _paths(self) -> tuple[Path, ...]:
        if self.path.is_file():
            return (self.path,)
        paths = class_folders.files_below(self.path, self.endings).paths if self.path.is_dir() else ()
        if not paths:
            raise ConfigError(
                f"there are no recordings at {self.path}", remedy=f"expected {', '.join(self.endings)}"
            )
        return paths

    @cached_property
    def _read(self) -> broken_files.ReadFiles[Recording]:
        return broken_files.read_each(self._paths, self.read, source=str(self.path))

    @cached_property
    def _names(self) -> list[str]:
        """The signals that all files have; the others are left out, which is said."""
        every = dict.fromkeys(name for recording in self._read.values for name in recording.signals)
        names = [name for name in every if all(name in each.signals for each in self._read.values)]
        if len(names) < len(every):
            others = ", ".join(name for name in every if name not in names)
            said_once.say_once(f"{self.path}: signals that not all files have are left out: {others}")
        return names

    def _check_alike(self) -> None:
        """Raise `ConfigError` for files that lack a common signal, or have different steps or units."""
        if not self._names:
            raise ConfigError("its files have no signal in common", place=self.path)
        about = [recording.about(self._names) for recording in self._read.values]
        other = next((place for place, words in enumerate(about) if words != about[0]), 0)
        if other:
            paths = [self._paths[place] for place in self._read.places]
            raise ConfigError(
                f"{paths[other]} has {about[other]}; {paths[0].name} has {about[0]}", remedy="convert one"
            )

    def _rows(self) -> Iterator[Row]:
        self._check_alike()
        yield 0, [ROW, FILE, LABEL, *self._names]
        for place, recording in zip(self._read.places, self._read.values, strict=True):
            path = self._paths[place]
            single = [str(place + 1), path.name, self.label(path)]
            columns = [recording.signals[name].tolist() for name in self._names]
            for moment in zip(*columns, strict=True):
                yield place + 1, [*single, *map(str, moment)]
