"""Data sources: a name in the configuration becomes one `LabelledData`."""

import inspect
import traceback
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np

from edge_client.data.arrays import array_options, examples, examples_of, read_npz
from edge_client.data.classes import are_numbers
from edge_client.data.dataset import LabelledData
from edge_client.data.digits import read_digits
from edge_client.data.file_kinds import check_kind
from edge_client.data.source_options import place_and_options
from edge_client.data.splits import Split, last_fifth, named_part, split_off
from edge_client.data.tables.kinds import TABLES, read_source
from edge_client.data.validation import checked_images, checked_labels
from edge_client.system.plugins import Registry
from edge_client.system.schemas_package import hidden_by_ours
from edge_client.system.user_code import FAILS, users_function
from schemas.errors import ConfigError, nearest

WITH_OPTIONS = frozenset({"folder", "npz", "wav", *TABLES})  # kinds of sources with options behind the path


@dataclass(frozen=True)
class SourceRequest:
    """What to read: the kind of source, the text after its colon, the data root, the split.

    Data without official parts is read whole, or with `apart` only four fifths or one fifth of it.
    """

    kind: str
    argument: str
    data_root: Path | None
    split: Split
    apart: bool = False

    @property
    def path(self) -> Path:
        """The argument as a path, without options; a relative one is below the data root, if there is one."""
        return self._place_and_options[0]

    @property
    def options(self) -> str:
        """The text behind the path and a question mark."""
        return self._place_and_options[1]

    @property
    def _place_and_options(self) -> tuple[Path, str]:
        if self.kind in WITH_OPTIONS:
            return place_and_options(self.argument, self.data_root)
        path = Path(self.argument).expanduser()
        return path if self.data_root is None else self.data_root / path, ""

    def of(self, data: LabelledData) -> LabelledData:
        """The requested part of data without official parts."""
        return split_off(data, self.split) if self.apart else data


def _digits(request: SourceRequest) -> LabelledData:
    return read_digits(request.split)


def _npz(request: SourceRequest) -> LabelledData:
    options = array_options(request.options, source=f"npz:{request.path}")
    arrays, place = read_npz(request.path), str(request.path)
    data, official = examples_of(arrays, split=request.split, source=place, options=options)
    return data if official else request.of(data)


def _python(request: SourceRequest) -> LabelledData:
    named = f"data source python:{request.argument}"
    function: Any = users_function(request.argument, what=named)
    offered = {"split": request.split, "data_root": request.data_root}
    given = {name: value for name, value in offered.items() if name in _parameters(function)}
    try:
        value = function(**given)
    except ConfigError:
        # It names its remedy itself.
        raise
    except FAILS as error:
        # The user's own code may fail in any way, and all of them are for the user to repair.
        why, clash = f"{named} failed with {failure_of(error)}", hidden_by_ours(error)
        raise ConfigError(f"{why}{clash}", quoted="" if clash else repr(error)) from error
    data = _examples(value, f"python:{request.argument}")
    return data if "split" in given else request.of(data)


def failure_of(error: BaseException) -> str:
    """The kind of an error and its line; its text may quote the data."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" in {frames[-1].filename} line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{place}"


def _parameters(function: Any) -> Collection[str]:
    """The names of a user's function's parameters; none if they cannot be found."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return ()


def _examples(value: Any, source: str) -> LabelledData:
    """The validated examples of a user's function."""
    if isinstance(value, LabelledData):
        images = checked_images(value.images, f"{source}: images")
        where = f"{source}: labels"
        labels = checked_labels(value.labels, where, images=len(images), class_names=value.class_names)
        # Words are names, whatever a function says of them.
        named = value.named or (labels.ndim == 1 and not are_numbers(value.class_names))
        return replace(value, labels=labels, named=named)
    try:
        images, labels = (np.asarray(part) for part in value)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"data source {source} returned {type(value).__name__}, expected (images, labels) or LabelledData"
        ) from error
    images = checked_images(images, f"{source}: images")
    return examples(images, checked_labels(labels, f"{source}: labels", images=len(images)), source)


def _folder(request: SourceRequest) -> LabelledData:
    # Imported here because it needs Pillow, which other sources do without.
    from edge_client.data.pictures.folders import read_folder

    data, official = read_folder(request.path, request.options, split=request.split)
    return data if official else request.of(data)


def _table(request: SourceRequest) -> LabelledData:
    data, official = read_source(request.kind, request.path, request.options, split=request.split)
    # Windows overlap: parts in the order of the file share the fewest rows.
    return last_fifth(data, request.split) if request.apart and not official else data


def _wav(request: SourceRequest) -> LabelledData:
    from edge_client.data.sounds.recordings import read_recordings

    data, official = read_recordings(request.path, request.options, split=request.split)
    return data if official else request.of(data)


def _named(request: SourceRequest) -> LabelledData:
    # Imported here because it may need torchvision, which a board that only infers does not have.
    from edge_client.data.named_sets import read_named

    return read_named(request.kind, data_root=request.data_root, split=request.split)


FILES = frozenset({"folder", "npz", "wav", *TABLES})  # kinds of sources whose files may change

DATABASES = frozenset({"sqlite", "recorded", "homeassistant"})

SOURCES: Registry[tuple[Callable[[SourceRequest], LabelledData], str]] = Registry(
    "data-source",
    {
        "digits": (_digits, ""),
        "mnist": (_named, ""),
        "fashionmnist": (_named, ""),
        "emnist": (_named, ""),
        "cifar10": (_named, ""),
        "cifar100": (_named, ""),
        "folder": (_folder, "PATH"),
        "npz": (_npz, "PATH"),
        **dict.fromkeys(TABLES, (_table, "PATH?label=COLUMN")),
        "wav": (_wav, "FOLDER"),
        "python": (_python, "module:function"),
    },
)


def load_source(source: str, *, data_root: Path | None = None, split: Split = "train") -> LabelledData:
    """Load `digits`, `MNIST`, `folder:PATH`, `npz:PATH`, `python:module:function`...; see `SOURCES`.

    `split` is the purpose; a part in the name, as in `npz:PATH#test`, overrides it (see `splits`). Nothing is
    downloaded. Raises `ConfigError` for unknown sources, missing files and unusable data.
    """
    request = _request(source, data_root, split)
    if request.kind in FILES:
        check_kind(request.kind, request.path)
    read, _ = SOURCES[request.kind]
    return read(request)


def files_of(source: str, *, data_root: Path | None = None) -> tuple[Path, ...]:
    """The folder or files of a source; none if it has none that can change."""
    request = _request(source, data_root, "train")
    if request.kind not in FILES:
        return ()
    # SQLite appends to the second file before it changes the first.
    further = [request.path.with_name(f"{request.path.name}-wal")] if request.kind in DATABASES else []
    if request.kind in TABLES:
        labels = dict(parse_qsl(request.options)).get("labels")
        further += [Path(labels).expanduser()] if labels else []
    return (request.path, *further)


def is_function(source: str) -> bool:
    """Whether a source is a function, whose changes only another call reveals."""
    return source.strip().lower().startswith("python:")


def _request(source: str, data_root: Path | None, split: Split) -> SourceRequest:
    whole, part = named_part(source.strip())
    kind, _, argument = whole.partition(":")
    kind = kind.lower()
    if kind not in SOURCES:
        raise ConfigError(
            f"unknown data source {source!r}{nearest(kind, SOURCES)}; python:module:function reads all else"
        )
    _, expected = SOURCES[kind]
    if bool(argument) != bool(expected):
        raise ConfigError(f"data source {source!r} is written {kind}{':' + expected if expected else ''}")
    return SourceRequest(kind, argument, data_root, part or split, apart=part is not None)
