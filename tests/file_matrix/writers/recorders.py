"""Recordings by recorders that are not here, and by recorders that were ended: their layouts."""

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.file_matrix.rows import Rows
from tests.file_matrix.writers.tones import LENGTH, RATE, Array, in_numbers, sound_row

RECORDERS = Rows()


def _layout(
    kind: str, writer: str, make: Callable[[Array], bytes], read: Callable[[bytes], Array], **more: Any
) -> None:
    """A row of files whose bytes are made here, and read here."""
    sound_row(
        RECORDERS,
        kind,
        writer,
        "wav",
        lambda path, samples: path.write_bytes(make(samples)) and None,
        read=lambda path: read(path.read_bytes()),
        **more,
    )


def _extensible(samples: Array, bits: int, valid: int, *, at_top: bool = True) -> bytes:
    """`bits` per sample of which the upper or lower `valid` count, as arrays of microphones write them."""
    numbers = (in_numbers(samples, valid).astype("<i4") << (bits - valid) * at_top).astype("<i4")
    data = numbers[..., None].view("u1")[..., : bits // 8].tobytes()
    channels, width = samples.shape[1], bits // 8
    form = struct.pack("<HHIIHH", 0xFFFE, channels, RATE, RATE * channels * width, channels * width, bits)
    form += struct.pack("<HHI", 22, valid, (1 << channels) - 1)
    form += bytes.fromhex("0100000000001000800000aa00389b71")
    chunks = b"fmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


def _last_words(width: int, channels: int, start: int) -> Callable[[bytes], Array]:
    """Reads whole frames of little-endian numbers behind a header of `start` bytes, as soundfile does."""

    def read(data: bytes) -> Array:
        body = data[start:]
        frames = np.frombuffer(body[: len(body) // (width * channels) * width * channels], f"<i{width}")
        return np.asarray(frames.reshape(-1, channels).mean(axis=1) / 2 ** (8 * width - 1))

    return read


_layout(
    "WAV, 24 bits in 32, 6 channels",
    "as ReSpeaker",
    lambda samples: _extensible(samples, 32, 24),
    _last_words(4, 6, 68),
    channels=6,
)
_layout(
    "WAV, 24 bits in the lower part of 32",
    "as an I2S microphone",
    lambda samples: _extensible(samples, 32, 24, at_top=False),
    _last_words(4, 1, 68),
)
_layout(
    "WAV, 12 bits in 16",
    "as a 12-bit recorder",
    lambda samples: _extensible(samples, 16, 12),
    _last_words(2, 1, 68),
)


def _ended(sizes: tuple[int, int], odd: bytes = b"", cut: int = 0) -> Callable[[Array], bytes]:
    """A plain WAV file of 16 bits with these sizes in its header, bytes behind it, or less of it."""

    def make(samples: Array) -> bytes:
        data = in_numbers(samples, 16).tobytes()
        form = struct.pack("<HHIIHH", 1, 1, RATE, RATE * 2, 2, 16)
        head = b"RIFF" + struct.pack("<I", sizes[0]) + b"WAVEfmt " + struct.pack("<I", 16) + form
        return head + b"data" + struct.pack("<I", sizes[1]) + data[: len(data) - cut] + odd

    return make


WHOLE = (36 + 2 * LENGTH, 2 * LENGTH)
for kind, writer, sizes, odd, cut in (
    ("WAV, killed while recording, sizes 0", "as arecord", (0, 0), b"", 0),
    ("WAV, killed while recording, sizes 0xFFFFFFFF", "as GStreamer", (0xFFFFFFFF, 0xFFFFFFFF), b"", 0),
    ("WAV, killed while recording, sizes 0x80000000", "as arecord", (0x80000024, 0x80000000), b"", 0),
    ("WAV, cut in the middle of a sample", "as arecord", WHOLE, b"", 101),
    ("WAV, zero bytes at the end", "as a board without power", WHOLE, bytes(512), 0),
):
    _layout(
        kind, writer, _ended(sizes, odd, cut), lambda data: _last_words(2, 1, 44)(data[: 44 + 2 * LENGTH])
    )
