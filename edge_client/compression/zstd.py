"""Compresses whole blobs with zstd (RFC 8878), in a stream."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from schemas.errors import ConfigError, PeerError, Reason
from schemas.tensors.arrays import AnyArray
from schemas.tensors.files import tensor_file_blocks

MAGIC = bytes.fromhex("28b52ffd")  # in a safetensors file they would mean a header of 4 GB
WINDOW_BYTES = 8 * 1024 * 1024  # the decoder's limit; RFC 8878 recommends that decoders support this size
WRITTEN_WINDOW_LOG = 21  # a quarter of the limit: distant matches save nothing in weights
_PIECE = 1024 * 1024


@dataclass(frozen=True)
class Zstd:
    """`level` 1 is the fastest, 19 the smallest; for quantised numbers 2 to 5 are worse than 1."""

    level: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.level, int) or not 1 <= self.level <= 19:
            raise ValueError(f"level is a whole number from 1 to 19, not {self.level}")
        _zstandard()

    def write(self, file: BinaryIO, arrays: Mapping[str, AnyArray]) -> str:
        """Write a compressed file of tensors; returns its sha256 in hex."""
        zstd = _zstandard()
        # The default window of high levels exceeds what decoders must support.
        chosen = zstd.ZstdCompressionParameters.from_level(self.level, window_log=WRITTEN_WINDOW_LOG)
        hashed, compressor = _Hashed(file), zstd.ZstdCompressor(compression_params=chosen)
        with compressor.stream_writer(cast(IO[bytes], hashed), closefd=False) as writer:
            for data in tensor_file_blocks(arrays):
                writer.write(data)
        return hashed.digest.hexdigest()


def _zstandard() -> Any:
    """The package, imported late: a device that only infers lacks it. Raises `ConfigError` without it."""
    try:
        import zstandard
    except ImportError as error:
        remedy = "pip install 'edge-federation[client]', or leave 'zstd' out"
        raise ConfigError("codec 'zstd' needs the package zstandard", remedy=remedy) from error
    return zstandard


class _Hashed:
    """Writes to a file and computes the sha256 of the bytes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.digest = file, hashlib.sha256()

    def write(self, data: Any) -> int:
        self.digest.update(data)
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()


def is_compressed(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def unpack(
    source: Path, target: BinaryIO, *, limit: int | None = None, through: bytearray | None = None
) -> memoryview | None:
    """Write the content of `source`; raises `PeerError` for damage, and beyond `limit` bytes.

    A truncated frame is not detected: the content states its own length. `through` is the buffer to use; if
    all of the content fits into the buffer, it is returned.
    """
    zstd, written = _zstandard(), 0
    buffer = memoryview(bytearray(_PIECE) if through is None else through)
    stream_reader = zstd.ZstdDecompressor(max_window_size=WINDOW_BYTES).stream_reader
    try:
        with (
            source.open("rb", buffering=0) as file,
            stream_reader(file, read_size=_PIECE, read_across_frames=True) as reader,
        ):
            while count := _fill_buffer(reader, buffer):
                written += count
                if limit is not None and written > limit:
                    detail = f"{source.name} unpacks to more than {limit} bytes"
                    raise PeerError(detail, reason=Reason.OVERSIZED)
                target.write(buffer[:count])
            return buffer[:written].toreadonly() if written < len(buffer) else None
    except zstd.ZstdError as error:
        raise PeerError(f"{source.name} is not valid zstd data: {error}") from error


def _fill_buffer(reader: Any, buffer: memoryview) -> int:
    """Fill the buffer; returns the number of bytes, which is smaller only at the end."""
    count = 0
    while count < len(buffer) and (read := reader.readinto(buffer[count:])):
        count += read
    return count
