"""Folders with one sub-folder of files per class: which are parts, which are classes, and which are no data.

Of many files a few may be broken: these are left out, counted and named.

A root may have its own parts, for training and testing, by the usual names; a validation part is for testing
where there is no other. Hidden files and folders, and those that systems and tools put beside data, are
skipped. What is left out is said once.
"""

import logging
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from edge_client.data.classes import Names, in_order
from edge_client.data.said_once import say_once
from schemas.errors import ConfigError, format_count
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
            f"{len(errors)} of {len(paths)} files are broken, more than broken={most:g} allows",
            place=source,
            remedy=f"repair or remove them; the first: {errors[0]}",
        ) from errors[0]
    first = first_of(errors, by="; ")
    log.warning("%s: %d of %d files are skipped; the first: %s", source, len(errors), len(paths), first)
    return ReadFiles(
        values, places, SkippedFiles(files=len(errors), of=len(paths), first=str(errors[0])[:500])
    )


TRAINING = ("train", "training")
TESTING = ("test", "testing", "validation", "val", "valid", "dev", "eval")  # the first that a root has
SERVICE = frozenset(
    {
        *("@eadir", "#recycle", "#snapshot", "lost+found", "__macosx", "__pycache__", "_background_noise_"),
        *("$recycle.bin", "system volume information", "thumbs.db", "ehthumbs.db", "desktop.ini"),
    }
)
"""Names of folders and files that are no data, in lower case; Speech Commands has `_background_noise_`."""
USUAL = (".wav", ".flac", ".mp3", ".ogg", ".jpg", ".png", ".webp", ".tif")  # endings that messages name first
MAX_NAMED = 8  # most names in a log line


@dataclass(frozen=True)
class Parts:
    """The folder that is read for a purpose, and all folders whose sub-folders are the classes.

    Without `official` parts there is only one.
    """

    chosen: Path
    every: tuple[Path, ...]
    official: bool

    @property
    def class_names(self) -> Names:
        """The names of all classes; a part may lack some."""
        return in_order(folder.name for part in self.every for folder in class_folders(part))


@dataclass(frozen=True)
class FolderFiles:
    """The files of a folder by place and name, how many others by ending, and names of what is no data."""

    paths: tuple[Path, ...]
    others: Mapping[str, int]
    skipped: frozenset[str]


def parts_of(root: Path, split: str) -> Parts:
    """The part of a root that is for `train` or `test`; the root itself if it has no such pair of folders."""
    folders = {path.name.lower(): path for path in reversed(class_folders(root))}
    training = next((folders[name] for name in TRAINING if name in folders), None)
    testing = next((folders[name] for name in TESTING if name in folders), None)
    if training is None or testing is None:
        part = training or testing
        only = part if part and len(folders) == 1 and class_folders(part) else root
        return Parts(only, (only,), official=False)
    names = [path.name for path in (training, testing)]
    if unused := sorted(path.name for path in folders.values() if path.name not in names):
        say_once(
            f"{root}: {names[0]} is for training, {names[1]} for testing, {', '.join(unused)} is not used"
        )
    _say_skipped(root, ())
    return Parts(testing if split == "test" else training, (training, testing), official=True)


def class_folders(root: Path) -> list[Path]:
    """The sub-folders of a root that are data, by name; none if it is not a folder."""
    if not root.is_dir():
        return []
    return sorted(path for path in root.iterdir() if path.is_dir() and not is_service(path.name))


def is_service(name: str) -> bool:
    """Whether a file or folder is hidden, or was put there by a system or tool."""
    return name.startswith(".") or name.lower() in SERVICE


def files_below(folder: Path, endings: Collection[str]) -> FolderFiles:
    """The files of a folder and its sub-folders with one of the endings, which are in lower case."""
    paths, others, skipped = list[Path](), Counter[str](), set[str]()
    for place, folders, names in os.walk(folder, followlinks=True):
        skipped.update(name for name in (*folders, *names) if is_service(name))
        folders[:] = [name for name in folders if not is_service(name)]
        for path in (Path(place, name) for name in names if not is_service(name)):
            if path.suffix.lower() in endings:
                paths.append(path)
            else:
                others[path.suffix.lower() or "without ending"] += 1
    paths.sort(key=lambda path: (str(path.parent), path.name))
    return FolderFiles(tuple(paths), others, frozenset(skipped))


def files_of_classes(
    root: Path, endings: Collection[str], *, remedies: Mapping[str, str] | None = None
) -> dict[str, tuple[Path, ...]]:
    """The files of each class of a root; empty without sub-folders. What is left out is said once.

    `remedies` tell by ending what would read a file that is left out. Raises `ConfigError` for a class
    without a file that can be read.
    """
    found = {folder.name: files_below(folder, endings) for folder in class_folders(root)}
    for name, files in found.items():
        if not files.paths:
            raise ConfigError(
                f"class '{name}' has no file that can be read: "
                f"{counts_in_words(files.others, remedies or {}) or 'the folder is empty'}",
                place=root / name,
                remedy=f"expected files such as {', '.join(_usual_first(endings)[:4])}, or no folder",
            )
    say_left_out(root, sum((Counter(files.others) for files in found.values()), Counter[str]()), remedies)
    if found:
        _say_skipped(root, {name for files in found.values() for name in files.skipped})
    return {name: files.paths for name, files in found.items()}


def without_classes(part: Path, endings: Collection[str]) -> str:
    """Why a folder has no classes, if it is one: its files lie in no sub-folders; else empty."""
    if not part.is_dir():
        return ""
    count = sum(path.suffix.lower() in endings for path in part.iterdir())
    has = format_count(count, "file") if count else "no files"
    such = _usual_first(endings)[0]
    return (
        f"{part} has {has} such as {such} and no sub-folders, which name the classes: put the files of each "
        f"class into a sub-folder, {part.name}/CLASS/NAME{such}"
    )


def _usual_first(endings: Collection[str]) -> list[str]:
    return [*(ending for ending in USUAL if ending in endings), *sorted({*endings} - {*USUAL})]


def say_left_out(root: Path, others: Mapping[str, int], remedies: Mapping[str, str] | None = None) -> None:
    """Tell how many files below a root have other endings, and what would read them."""
    if others:
        say_once(f"{root}: files of another kind are left out: {counts_in_words(others, remedies or {})}")


def _say_skipped(root: Path, below: Iterable[str]) -> None:
    """Name what is skipped in a root, and below its classes."""
    names = sorted({*below, *(path.name for path in root.iterdir() if is_service(path.name))})
    if names:
        say_once(f"{root}: skipped, hidden or no data: {first_of(names)}")


def first_of(names: Sequence[object], *, by: str = ", ") -> str:
    """The first of what a log line names, and how many more there are."""
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return by.join(map(str, names[:MAX_NAMED])) + more


def counts_in_words(others: Mapping[str, int], remedies: Mapping[str, str]) -> str:
    """How many files have which ending, the most frequent first, and what would read them."""
    order = sorted(others.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(
        f"{count} {ending}" + (f" ({remedies[ending]})" if ending in remedies else "")
        for ending, count in order
    )
