"""Which kind of file a path is, by its first bytes: one of another kind than stated is refused by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from schemas.errors import ConfigError

MAX_LOOK = 4096
FUNCTION = "read it by a function, python:module:function"


@dataclass(frozen=True)
class FileKind:
    """What a file is, the sources that read it, and what to do with it if not to name one of these."""

    what: str
    sources: tuple[str, ...] = ()
    remedy: str = ""


JSON = FileKind("JSON", ("jsonl", "senml", "edgeimpulse", "coco"))
TEXT = FileKind("text", ("csv", "influxdb"))
ANNOTATED = FileKind("annotated CSV of InfluxDB", ("influxdb",))
SOUND = FileKind("a recording", ("wav",), "name its folder, wav:FOLDER")
CAPTURE = FileKind("a capture of packets", remedy=f"make a table of it (tshark -T fields), or {FUNCTION}")

BY_START: Mapping[bytes, FileKind] = {
    b"PAR1": FileKind("a Parquet file", ("parquet",)),
    b"ARROW1": FileKind("an Arrow file", ("arrow", "feather")),
    b"FEA1": FileKind(
        "a Feather file of version 1", remedy="write it again by pyarrow.feather.write_feather"
    ),
    b"SQLite format 3\0": FileKind("an SQLite file", ("sqlite", "homeassistant", "recorded")),
    b"MATLAB": FileKind("a MATLAB file", ("mat",)),
    b"\x89HDF": FileKind("an HDF5 file", ("mat",), FUNCTION),
    b"#datatype,": ANNOTATED,
    b"#group,": ANNOTATED,
    b"#default,": ANNOTATED,
    b"{": JSON,
    b"[": JSON,
    b"RIFF": SOUND,
    b"RF64": SOUND,
    b"\x93NUMPY": FileKind("one array", remedy="save arrays images and labels by numpy.savez, npz:PATH"),
    b"Obj\x01": FileKind("an Avro file", remedy=f"write it as JSON lines (avro cat), or {FUNCTION}"),
    b"\xd4\xc3\xb2\xa1": CAPTURE,
    b"\xa1\xb2\xc3\xd4": CAPTURE,
    b"\x4d\x3c\xb2\xa1": CAPTURE,
    b"\x0a\x0d\x0d\x0a": CAPTURE,
    b"\x1f\x8b": FileKind("compressed", ("csv",), "unpack it with gunzip"),
    b"\xd0\xcf\x11\xe0": FileKind("an Excel workbook", remedy="save its sheet as CSV"),
}
BY_ENDING: Mapping[str, FileKind] = {
    ".npz": FileKind("a file of arrays", ("npz",)),
    ".xlsx": FileKind("an Excel workbook", remedy="save its sheet as CSV"),
    ".ods": FileKind("a workbook", remedy="save its sheet as CSV"),
    ".orc": FileKind("an ORC file", remedy=f"write it as Parquet, or {FUNCTION}"),
    ".yaml": FileKind("a description of pictures", remedy="name its folder, yolo:FOLDER"),
    ".tfrecord": FileKind("a file of TensorFlow", remedy=FUNCTION),
    ".tfrecords": FileKind("a file of TensorFlow", remedy=FUNCTION),
}
"""Where the beginning says nothing, or that it is a ZIP file."""


def check_kind(kind: str, path: Path) -> None:
    """Raise `ConfigError`, which names what does, if a source of this kind (or none) does not read a file."""
    found = _kind_of(path)
    if found is None or kind in found.sources:
        return
    remedy = found.remedy or f"name it {' or '.join(f'{source}:PATH' for source in found.sources)}"
    source = f", which {kind}: does not read" if kind else ""
    raise ConfigError(f"{path} is {found.what}{source}", remedy=remedy)


def _kind_of(path: Path) -> FileKind | None:
    """The kind of a file; None for a folder, and where it is unknown."""
    if not path.is_file():
        return None
    try:
        with path.open("rb") as file:
            start = file.read(MAX_LOOK).removeprefix(b"\xef\xbb\xbf")
    except OSError:
        # The reader says so.
        return None
    by_start = next((kind for magic, kind in BY_START.items() if start.startswith(magic)), None)
    return by_start or BY_ENDING.get(path.suffix.lower()) or (TEXT if _is_text(start) else None)


def _is_text(start: bytes) -> bool:
    """Whether bytes are UTF-8, whose last character may be cut."""
    try:
        start[: start.rfind(b"\n") + 1].decode()
    except UnicodeDecodeError:
        return False
    return b"\n" in start and b"\0" not in start
