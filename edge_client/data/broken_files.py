"""Reading of many files of which a few may be broken: these are left out, counted and named."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from schemas.errors import ConfigError
from schemas.values import SkippedFiles

log = logging.getLogger(__name__)

MAX_BROKEN = 0.1  # share of files that may be broken, unless the source states another; one may be
Value = TypeVar("Value")


@dataclass(frozen=True)
class ReadFiles(Generic[Value]):
    """The values of the files that could be read, with their places among all files, and what was skipped."""

    values: list[Value]
    places: list[int]
    skipped: SkippedFiles | None


def read_each(
    paths: Sequence[Path], read: Callable[[Path], Value], *, source: str, most: float = MAX_BROKEN
) -> ReadFiles[Value]:
    """Read every file; one that raises `ConfigError` is skipped, and the log says so once for all of them.

    Raises the first file's `ConfigError`, with the count, if more than the share `most` of them is broken.
    """
    values, places, errors = list[Value](), list[int](), list[ConfigError]()
    for place, path in enumerate(paths):
        try:
            values.append(read(path))
        except ConfigError as error:
            errors.append(error)
        else:
            places.append(place)
    if not errors:
        return ReadFiles(values, places, None)
    if not values or len(errors) > max(1, most * len(paths)):
        if len(paths) == 1:
            raise errors[0]
        raise ConfigError(
            f"{len(errors)} of {len(paths)} files are broken, more than broken={most:g} allows: {errors[0]}",
            place=source,
        ) from errors[0]
    log.warning("%s: %d of %d files are skipped; the first: %s", source, len(errors), len(paths), errors[0])
    return ReadFiles(
        values, places, SkippedFiles(files=len(errors), of=len(paths), first=str(errors[0])[:500])
    )
