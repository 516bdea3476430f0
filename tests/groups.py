"""Parameter groups as bytes in the format of their files."""

import io
import tempfile
from pathlib import Path

from schemas.tensors.arrays import AnyArray, Groups
from schemas.tensors.files import FileGroups, FlatGroups, write_tensors


def encode_groups(groups: Groups) -> bytes:
    """The bytes of a file with these groups."""
    file = io.BytesIO()
    write_tensors(file, FlatGroups(groups))
    return file.getvalue()


def decode_groups(data: bytes) -> dict[str, dict[str, AnyArray]]:
    """All arrays in the bytes of a file; raises `PeerError` for any other data."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        return read_groups(Path(file.name))


def read_groups(path: Path) -> dict[str, dict[str, AnyArray]]:
    """All arrays of the file at `path`."""
    groups = FileGroups(path)
    return {group: dict(groups[group]) for group in groups}
