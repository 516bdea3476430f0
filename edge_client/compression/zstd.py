"""Entropy coding of a whole blob, header included: zstd (RFC 8878), written and read a piece at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from schemas.errors import ConfigError, PeerError
from schemas.tensors.arrays import AnyArray
from schemas.tensors.files import tensor_file_blocks
from schemas.values import Reason

MAGIC = bytes.fromhex("28b52ffd")
"""How a frame begins; a safetensors file cannot, its header would be of 4 GB."""
WINDOW_BYTES = 8 * 1024 * 1024
"""The most that a decoder keeps in memory; RFC 8878 asks every one for that much."""
WRITTEN_WINDOW_LOG = 21
"""A quarter of that: what a far match spares of weights is nothing."""
_PIECE = 1024 * 1024


@dataclass(frozen=True)
class Zstd:
    """`level` 1 is fastest, 19 smallest; of rounded numbers 2 to 5 make more bytes than 1, more slowly."""

    level: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.level, int) or not 1 <= self.level <= 19:
            raise ValueError(f"level is a whole number from 1 to 19, not {self.level}")
        _zstandard()

    def write(self, file: BinaryIO, arrays: Mapping[str, AnyArray]) -> str:
        """A file of tensors, compressed; returns the sha256 of what was written, hex."""
        zstd = _zstandard()
        # At high levels the window would be larger than what decoders must take.
        chosen = zstd.ZstdCompressionParameters.from_level(self.level, window_log=WRITTEN_WINDOW_LOG)
        hashed, compressor = _Hashed(file), zstd.ZstdCompressor(compression_params=chosen)
        with compressor.stream_writer(cast(IO[bytes], hashed), closefd=False) as writer:
            for data in tensor_file_blocks(arrays):
                writer.write(data)
        return hashed.digest.hexdigest()


def _zstandard() -> Any:
    """The package, imported late: a board that only infers has none. Raises `ConfigError` without it."""
    try:
        import zstandard
    except ImportError as error:
        raise ConfigError(
            "codec 'zstd' needs the package zstandard: pip install 'edge-federation[client]', "
            "or leave 'zstd' out"
        ) from error
    return zstandard


class _Hashed:
    """A file that is written to, and the sha256 of what was."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.digest = file, hashlib.sha256()

    def write(self, data: Any) -> int:
        self.digest.update(data)
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()


def is_compressed(path: Path) -> bool:
    """Whether a file begins as a zstd frame does."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def unpack(
    source: Path, target: BinaryIO, *, limit: int | None = None, through: bytearray | None = None
) -> memoryview | None:
    """Write what `source` holds; raises `PeerError` for damage, and beyond `limit` bytes.

    A frame that was cut off is not told from one that ends: what it holds says how long it is. It goes
    `through` a buffer, and what that is left with is returned if that is all of it.
    """
    zstd, written = _zstandard(), 0
    buffer = memoryview(bytearray(_PIECE) if through is None else through)
    try:
        with (
            source.open("rb", buffering=0) as file,
            zstd.ZstdDecompressor(max_window_size=WINDOW_BYTES).stream_reader(
                file, read_size=_PIECE, read_across_frames=True
            ) as reader,
        ):
            while count := _filled(reader, buffer):
                written += count
                if limit is not None and written > limit:
                    raise PeerError(
                        f"{source.name} unpacks to more than {limit} bytes", reason=Reason.OVERSIZED
                    )
                target.write(buffer[:count])
            return buffer[:written].toreadonly() if written < len(buffer) else None
    except zstd.ZstdError as error:
        raise PeerError(f"{source.name} is not compressed as it should be: {error}") from error


def _filled(reader: Any, buffer: memoryview) -> int:
    """How many bytes there were for the buffer; fewer than it holds only at the end."""
    count = 0
    while count < len(buffer) and (read := reader.readinto(buffer[count:])):
        count += read
    return count
