"""WAV files made byte by byte, and tones."""

import struct
from pathlib import Path

import numpy as np

GUID = bytes.fromhex("00001000800000aa00389b71")  # the end of every GUID that stands for a format tag
EXTENSIBLE = 0xFFFE


def tone(hertz: float, seconds: float, rate: int = 8000) -> np.ndarray:
    return 0.5 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)


def pcm(samples, bits: int) -> bytes:
    """Samples from -1 to 1, [N] or [N, channels], as whole numbers of 8, 16, 24 or 32 bits."""
    whole = np.round(np.asarray(samples, np.float64) * (2 ** (bits - 1) - 1)).astype("<i4")
    if bits == 8:
        return (whole + 128).astype(np.uint8).tobytes()
    return whole.reshape(-1, 1).view(np.uint8)[:, : bits // 8].tobytes()


def wav_bytes(
    data: bytes,
    *,
    tag: int = 1,
    bits: int = 16,
    channels: int = 1,
    rate: int = 8000,
    frame: int | None = None,
    inner: int | None = None,
    valid: int | None = None,
    before: bytes = b"",
    size: int | None = None,
    whole: int | None = None,
    long: bytes = b"",
) -> bytes:
    """A file with this data, header and chunks before the data; with an `inner` tag it is extensible.

    `size` and `whole` are what it states of its data and of itself; `long` is RF64 or BW64.
    """
    frame = channels * -(-bits // 8) if frame is None else frame
    form = struct.pack(
        "<HHIIHH",
        tag if inner is None else EXTENSIBLE,
        channels,
        rate,
        rate * frame & 0xFFFFFFFF,
        frame,
        bits,
    )
    if inner is not None:
        form += struct.pack("<HHIHH", 22, valid or bits, 0, inner, 0) + GUID
    size = len(data) if size is None else size
    chunks = before + b"fmt " + struct.pack("<I", len(form)) + form
    if long:
        sizes = struct.pack("<QQQI", 0, size, 0, 0)
        chunks, size, whole = b"ds64" + struct.pack("<I", 28) + sizes + chunks, 0xFFFFFFFF, 0xFFFFFFFF
    body = b"WAVE" + chunks + b"data" + struct.pack("<I", size) + data
    return (long or b"RIFF") + struct.pack("<I", len(body) if whole is None else whole) + body


def write_wav(target: Path, samples, *, rate: int = 8000, bits: int = 16, channels: int = 1) -> None:
    """Samples from -1 to 1, [N] or [N, channels], as whole numbers."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(wav_bytes(pcm(samples, bits), rate=rate, bits=bits, channels=channels))
