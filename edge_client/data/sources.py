"""Data sources: a name in the configuration becomes one `LabelledData`.

Readers are imported when they read: what needs only the kinds of sources does without numpy.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from edge_client.data.file_kinds import check_kind
from edge_client.data.source_options import Split, last_fifth, named_part, place_and_options, split_off
from edge_client.data.tables.kinds import TABLES, read_source
from edge_client.system.plugins import Registry
from schemas.errors import ConfigError, nearest

if TYPE_CHECKING:
    from edge_client.data.dataset import LabelledData


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
        return place_and_options(self.argument, self.data_root)

    def of(self, data: "LabelledData", official: bool) -> "LabelledData":
        """The requested part of data; without official parts it is split off."""
        return split_off(data, self.split) if self.apart and not official else data


def _digits(request: SourceRequest) -> "LabelledData":
    from edge_client.data.arrays import read_digits

    return read_digits(request.split)


def _npz(request: SourceRequest) -> "LabelledData":
    from edge_client.data.arrays import array_options, examples_of, read_npz

    options = array_options(request.options, source=f"npz:{request.path}")
    arrays, place = read_npz(request.path), str(request.path)
    return request.of(*examples_of(arrays, split=request.split, source=place, options=options))


def _python(request: SourceRequest) -> "LabelledData":
    from edge_client.data.user_function import read_function

    return read_function(request)


def _folder(request: SourceRequest) -> "LabelledData":
    from edge_client.data.pictures.folders import read_folder

    return request.of(*read_folder(request.path, request.options, split=request.split))


def _boxes(request: SourceRequest) -> "LabelledData":
    from edge_client.data.pictures.folders import read_boxes

    found = read_boxes(request.kind, request.path, request.options, split=request.split)
    return request.of(found.data, found.official)


def _table(request: SourceRequest) -> "LabelledData":
    data, official = read_source(request.kind, request.path, request.options, split=request.split)
    # Windows overlap: parts in the order of the file share the fewest rows.
    return last_fifth(data, request.split) if request.apart and not official else data


def _wav(request: SourceRequest) -> "LabelledData":
    from edge_client.data.sounds.recordings import read_recordings

    return request.of(*read_recordings(request.path, request.options, split=request.split))


def _read_named_set(request: SourceRequest) -> "LabelledData":
    from edge_client.data.named_sets import read_named

    return read_named(request.kind, data_root=request.data_root, split=request.split)


@dataclass(frozen=True)
class SourceKind:
    """A kind of source: how it is read, how users write it, and what it holds.

    `summary` is for help, `details` (Markdown) for the reference. `of_files`: they may change, and there may
    be `further` ones. `is_function`: only another call says whether its data changed. `has_parts`: it has
    official parts in any case.
    """

    read: Callable[[SourceRequest], "LabelledData"]
    written: str
    summary: str
    details: str = ""
    of_files: bool = False
    further: Callable[[SourceRequest], Iterable[Path]] = lambda request: ()
    is_function: bool = False
    has_parts: bool = False

    @property
    def argument(self) -> str:
        """What stands behind the colon; empty for a source without one."""
        return self.written.partition(":")[2]


def _beside_table(request: SourceRequest) -> Iterable[Path]:
    # SQLite appends to the second file before it changes the first.
    if TABLES[request.kind].is_database:
        yield request.path.with_name(f"{request.path.name}-wal")
    if labels := dict(parse_qsl(request.options)).get("labels"):
        yield Path(labels).expanduser()


_NAMED_SETS = ("MNIST", "FashionMNIST", "EMNIST", "CIFAR10", "CIFAR100")
SOURCES: Registry[SourceKind] = Registry(
    "data-source",
    {
        "digits": SourceKind(
            _digits,
            "digits",
            "8x8 handwritten digits, shipped with this package",
            "1,797; [origin and licence](../../../edge_client/data/README.md)",
            has_parts=True,
        ),
        **{
            name.lower(): SourceKind(
                _read_named_set, name, "with --data-root, never downloaded", has_parts=True
            )
            for name in _NAMED_SETS
        },
        "folder": SourceKind(
            _folder,
            "folder:PATH",
            "a folder of images per class",
            "resized to the network's input; [options](../guides/data/data.md#folders-of-pictures)",
            of_files=True,
        ),
        **{
            name: SourceKind(
                _boxes,
                f"{name}:{argument}",
                f"pictures with boxes, as {tools} export them",
                'for `task = "detection"`; [options](../guides/data/detection.md#pictures-with-boxes)',
                of_files=True,
            )
            for name, argument, tools in (
                ("yolo", "FOLDER", "Label Studio, CVAT and Roboflow"),
                ("voc", "FOLDER", "LabelImg and CVAT"),
                ("coco", "PATH", "most tools"),
            )
        },
        "npz": SourceKind(
            _npz,
            "npz:PATH",
            "arrays `images` and `labels`; ?kind=pictures or ?kind=signals of [N, A, B]",
            "[options](../guides/data/data.md#arrays); `class_names` if labels have names",
            of_files=True,
        ),
        **{
            name: SourceKind(
                *(_table, f"{name}:{kind.argument}", kind.summary, kind.details),
                of_files=True,
                further=_beside_table,
            )
            for name, kind in TABLES.items()
        },
        "wav": SourceKind(
            _wav,
            "wav:FOLDER",
            "recordings in a folder per class",
            "or with classes in the files' names; WAV, and with `pip install 'edge-federation[audio]'` FLAC, "
            "OGG, MP3 and others; [options](../guides/data/tasks.md#recordings)",
            of_files=True,
        ),
        "python": SourceKind(
            _python,
            "python:module:function",
            "a function that returns images and labels; `split` and `data_root` are given if it takes them",
            'imported from the current folder or `PYTHONPATH`; `split` is "train" or "test", `data_root` '
            "is --data-root; it reads what no other source does",
            is_function=True,
        ),
    },
)
"""The kinds of sources by name, in lower case."""


def load_source(source: str, *, data_root: Path | None = None, split: Split = "train") -> "LabelledData":
    """Load `digits`, `MNIST`, `folder:PATH`, `npz:PATH`, `python:module:function`...; see `SOURCES`.

    `split` is the purpose; a part in the name, as in `npz:PATH#test`, overrides it (see `splits`). Nothing is
    downloaded. Raises `ConfigError` for unknown sources, missing files and unusable data.
    """
    request = _request(source, data_root, split)
    kind = SOURCES[request.kind]
    if kind.of_files:
        check_kind(request.kind, request.path)
    return kind.read(request)


def files_of(source: str, *, data_root: Path | None = None) -> tuple[Path, ...]:
    """The folder or files of a source; none if it has none that can change."""
    request = _request(source, data_root, "train")
    kind = SOURCES[request.kind]
    return (request.path, *kind.further(request)) if kind.of_files else ()


def is_function(source: str) -> bool:
    """Whether a source is a function, whose changes only another call reveals."""
    kind = _kind_of(source)
    return kind is not None and kind.is_function


def has_path(source: str) -> bool:
    """Whether a path may stand behind the colon; also of a source that is unknown here."""
    kind = _kind_of(source)
    return ":" in source and (kind is None or kind.argument.startswith(("PATH", "FOLDER")))


def part_of(source: str, split: Split) -> str:
    """The name of a part of a common source; sources with official parts need none."""
    whole, _ = named_part(source.strip())
    kind = _kind_of(whole)
    return whole if kind is None or kind.has_parts else f"{whole}#{split}"


def _kind_of(source: str) -> SourceKind | None:
    return SOURCES.get(source.strip().partition(":")[0].lower())


def _request(source: str, data_root: Path | None, split: Split) -> SourceRequest:
    whole, part = named_part(source.strip())
    name, _, argument = whole.partition(":")
    name = name.lower()
    if name not in SOURCES:
        raise ConfigError(
            f"unknown data source {source!r}{nearest(name, SOURCES)}; python:module:function reads all else"
        )
    kind = SOURCES[name]
    if bool(argument) != bool(kind.argument):
        raise ConfigError(f"data source {source!r} is written {kind.written}")
    return SourceRequest(name, argument, data_root, part or split, apart=part is not None)
