"""WAV files by their own format tag: RIFF, RF64 and BW64 of whole numbers, floats, A-law or mu-law.

Python's `wave` reads floats as whole numbers (3.15) or refuses files with an extended header (before 3.12).
Values are those of libsndfile. Whole numbers fill their container from the top, as the format says, so that
the number of valid bits does not matter; the size of a frame says how wide a container is.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from schemas.errors import ConfigError

KINDS = (b"RIFF", b"RF64", b"BW64")
PCM, FLOAT, A_LAW, MU_LAW, EXTENSIBLE = 1, 3, 6, 7, 0xFFFE
WIDTHS = {PCM: (1, 2, 3, 4), FLOAT: (4, 8), A_LAW: (1,), MU_LAW: (1,)}
"""Bytes of a sample by coding."""
BLOCK = 1 << 18
"""Most samples, of all channels together, that are decoded at once."""
MAX_CHUNKS, MAX_CHANNELS = 10_000, 64
Frames = NDArray[np.float64]


@dataclass(frozen=True)
class SoundStream:
    """A file's rate in Hz, and its frames [N, channels] from -1 to 1, in blocks that are read when asked for.

    The recorder of an `unfinished` file has not stated how long it is: it records still, or was cut off.
    """

    rate: int
    channels: int
    blocks: Iterator[Frames]
    unfinished: bool = False


def is_wav(head: bytes) -> bool:
    """Whether a file that begins with these 12 bytes is one."""
    return head[:4] in KINDS and head[8:12] == b"WAVE"


def open_wav(file: BinaryIO) -> SoundStream | None:
    """The samples of a WAV file; None if they are compressed or of another coding.

    Raises `ConfigError` whose words follow a name, such as `has no samples`.
    """
    file.seek(0, 2)
    end = file.tell()
    file.seek(0)
    whole, form, long_sizes = struct.unpack("<4xI4x", file.read(12))[0], b"", b""
    for _ in range(MAX_CHUNKS):
        head = file.read(8)
        if len(head) < 8:
            break
        name, size = struct.unpack("<4sI", head)
        start = file.tell()
        if name == b"data":
            if len(long_sizes) == 16 and size == 0xFFFFFFFF:
                whole, size = struct.unpack("<QQ", long_sizes)
            rest = end - start
            # A recorder that is killed leaves 0 or the largest number, and so does one that writes to a pipe.
            unfinished = size > rest or (size == 0 and rest > 0 and whole + 8 != end)
            return _stream(file, form, rest if unfinished else size, unfinished=unfinished)
        if name == b"fmt ":
            form = file.read(min(size, 40))
        elif name == b"ds64":
            long_sizes = file.read(min(size, 16))
        # Chunks begin at even places.
        file.seek(start + size + size % 2)
    raise ConfigError("has no samples")


def _stream(file: BinaryIO, form: bytes, size: int, *, unfinished: bool) -> SoundStream | None:
    """The next `size` bytes of a file as samples of this form."""
    if len(form) < 16:
        raise ConfigError("has samples before their format")
    coding, channels, rate, _, frame, bits = struct.unpack("<HHIIHH", form[:16])
    if coding == EXTENSIBLE and len(form) >= 26:
        (coding,) = struct.unpack("<H", form[24:26])
    if coding not in WIDTHS:
        return None
    width = frame // channels if channels and frame and frame % channels == 0 else -(-bits // 8)
    if width not in WIDTHS[coding] or not 1 <= channels <= MAX_CHANNELS:
        raise ConfigError(f"has {channels} channels of {bits} bits in frames of {frame} bytes")
    return SoundStream(rate, channels, _blocks(file, coding, width, channels, size), unfinished)


def _blocks(file: BinaryIO, coding: int, width: int, channels: int, size: int) -> Iterator[Frames]:
    """Frames [N, channels]; one that is cut off is left out."""
    frame = width * channels
    left = size // frame
    while left and (count := len(read := file.read(min(left, BLOCK // channels) * frame)) // frame):
        yield decoded(read[: count * frame], coding, width).reshape(-1, channels)
        left -= count


def decoded(raw: bytes, coding: int, width: int) -> Frames:
    """The samples, each of `width` bytes, from -1 to 1."""
    if coding == FLOAT:
        return np.frombuffer(raw, f"<f{width}").astype(np.float64)
    if coding in (A_LAW, MU_LAW):
        return _law(coding)[np.frombuffer(raw, np.uint8)]
    if width == 1:
        return np.frombuffer(raw, np.uint8) / 128 - 1
    if width == 3:
        wide = np.zeros((len(raw) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(raw, np.uint8).reshape(-1, 3)
        raw, width = wide.tobytes(), 4
    return np.frombuffer(raw, f"<i{width}") / float(1 << (8 * width - 1))


@lru_cache
def _law(coding: int) -> Frames:
    """The value of each byte, by ITU-T G.711: a sign, three bits of exponent, four of the value."""
    code = np.arange(256) ^ (0x55 if coding == A_LAW else 0xFF)
    exponent, value = code >> 4 & 7, code & 15
    if coding == A_LAW:
        size = np.where(exponent > 0, (value * 16 + 0x108) << np.maximum(exponent, 1) - 1, value * 16 + 8)
        return np.where(code & 0x80, size, -size) / 32768
    size = ((value * 8 + 0x84) << exponent) - 0x84
    return np.where(code & 0x80, -size, size) / 32768
