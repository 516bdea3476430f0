"""One recording of any kind of file: WAV by our own reader, all else by libsndfile (extra `audio`).

Training, `edge-client infer` and the services read recordings here, so that all have the same samples.
"""

import struct
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
from numpy.typing import NDArray

from schemas.errors import ConfigError

Samples = NDArray[np.float32]

CROSSINGS, BETA = 10, 5.0
MAX_TERM = 10_000
"""Largest number in the ratio of two rates; others are off by less than a crystal is, and no filter becomes
large."""


def resample_blocks(blocks: Iterable[Samples], own: float, rate: float) -> Iterator[Samples]:
    """Samples at `rate` Hz of consecutive blocks at `own` Hz; cuts between them change nothing."""
    up, down = _ratio(own, rate)
    weights = _weights(up, down)
    reach = weights.shape[1] // 2
    silence = np.zeros(reach, np.float32)
    # `held` begins at the sample `begin`; before the first and after the last sample there is silence.
    held, begin, done = silence, -reach, 0
    for block in chain(blocks, [silence]):
        held = np.concatenate([held, block])
        end = -(-(begin + len(held) - reach) * up // down)
        if end > done:
            yield _filter_samples(held, weights, down, begin=begin, places=range(done, end))
            drop = end * down // up - reach - begin
            held, begin, done = held[drop:], begin + drop, end


def _filter_samples(held: Samples, weights: Samples, down: int, *, begin: int, places: range) -> Samples:
    """The new samples at `places`; those with the same weights at once."""
    up, width = weights.shape
    windows = np.lib.stride_tricks.sliding_window_view(held, width)
    found = np.empty(len(places), np.float32)
    for slot, place in enumerate(places[:up]):
        same = found[slot::up]
        same[:] = (
            windows[place * down // up - width // 2 - begin :: down][: len(same)] @ weights[place * down % up]
        )
    return found


@lru_cache(maxsize=4)
def _weights(up: int, down: int) -> Samples:
    """Weights [up, 2 R + 1] of the R samples before and after, for each place between two samples."""
    slower = max(up, down)
    half = CROSSINGS * slower
    taps = np.sinc(np.arange(-half, half + 1) / slower) * np.kaiser(2 * half + 1, BETA)
    reach = half // up + 1
    padded = np.zeros((2 * reach + 1) * up)
    padded[reach * up - half : reach * up + half + 1] = taps * (up / taps.sum())
    return np.ascontiguousarray(padded.reshape(-1, up).T[:, ::-1], np.float32)


def _ratio(own: float, rate: float) -> tuple[int, int]:
    """By how much samples become more and fewer, in lowest terms of at most `MAX_TERM`."""
    exact = Fraction(round(rate), round(own))
    if exact > 1:
        return _ratio(rate, own)[::-1]
    near = exact.limit_denominator(MAX_TERM)
    return near.numerator, near.denominator


if TYPE_CHECKING:
    from soundfile import SoundFile  # type: ignore[import-untyped]


# WAV files by their own format tag: RIFF, RF64 and BW64 of whole numbers, floats, A-law or mu-law.
#
# Python's `wave` reads floats as whole numbers (3.15) or refuses files with an extended header (before 3.12).
# Values are those of libsndfile. Whole numbers fill their container from the top, as the format says, so that
# the number of valid bits does not matter; the size of a frame says how wide a container is.

KINDS = (b"RIFF", b"RF64", b"BW64")
PCM, FLOAT, A_LAW, MU_LAW, EXTENSIBLE = 1, 3, 6, 7, 0xFFFE
WIDTHS = {PCM: (1, 2, 3, 4), FLOAT: (4, 8), A_LAW: (1,), MU_LAW: (1,)}  # bytes of a sample by coding
BLOCK = 1 << 18  # most samples, of all channels together, that are decoded at once
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
        yield decode_samples(read[: count * frame], coding, width).reshape(-1, channels)
        left -= count


def decode_samples(raw: bytes, coding: int, width: int) -> Frames:
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


PLAIN = (".wav", ".wave", ".rf64", ".bw64", ".bwf")
FURTHER = (
    *(".flac", ".ogg", ".oga", ".opus", ".mp3", ".aif", ".aiff", ".aifc", ".au", ".snd"),
    *(".caf", ".w64", ".voc", ".sph"),
)
"""Endings of files that are read without and with the extra `audio`, in lower case."""
INSTALL = "pip install 'edge-federation[audio]'"
CONVERT = "convert it to FLAC: ffmpeg -i IN OUT.flac"
REMEDIES = {
    **dict.fromkeys(FURTHER, INSTALL),
    **dict.fromkeys((".m4a", ".aac", ".mp4", ".wma", ".amr", ".3gp", ".webm", ".mka"), CONVERT),
}
"""What helps where files with an ending cannot be read."""
ENDINGS = frozenset({*PLAIN, *REMEDIES})  # endings of all recordings, readable or not
RATES = range(1000, 768_001)  # Hz that are read; a few bytes of another could become gigabytes
_MAGIC = (b"fLaC", b"OggS", b"ID3", b".snd", b"caff", b"riff", b"RIFX", b"Creative Voice File", b"NIST_1A")
_MPEG = tuple(bytes([0xFF, version | checked | 2]) for version in (0xE0, 0xF0, 0xF8) for checked in (0, 1))
"""The beginning of a frame of layer III in MPEG 2.5, 2 and 1."""
_AAC = (b"\xff\xf1", b"\xff\xf9")


@dataclass(frozen=True, eq=False)
class Sound:
    """Samples [N] from -1 to 1, the mean of the file's channels, at its own rate in Hz or the wanted one."""

    samples: Samples
    rate: float
    channels: int
    unfinished: bool


def is_sound(head: bytes) -> bool:
    """Whether a file that begins with these 20 bytes is a recording; AAC is one, though it cannot be read."""
    aiff = head[:4] == b"FORM" and head[8:12] in (b"AIFF", b"AIFC")
    return is_wav(head) or aiff or head[4:11] == b"ftypM4A" or head.startswith(_MAGIC + _MPEG + _AAC)


def read_sound(source: Path | BinaryIO, *, rate: float | None = None, most: int | None = None) -> Sound:
    """Read a recording, resampled to `rate` Hz if that is stated, at most its first `most` samples.

    Raises `ConfigError` for a file that is no recording, has no samples, or whose rate is beyond `RATES`.
    """
    what = source if isinstance(source, Path) else "the body"
    try:
        with source.open("rb") if isinstance(source, Path) else nullcontext(source) as file:
            return _read(file, rate, most)
    except ConfigError as error:
        raise ConfigError(f"{what} {error}") from error
    except OSError as error:
        raise ConfigError(f"{what} cannot be read: {error.strerror or error}") from error


def _read(file: BinaryIO, rate: float | None, most: int | None) -> Sound:
    head = file.read(12)
    stream = (open_wav(file) if is_wav(head) else None) or _other(file, head)
    if stream.rate not in RATES:
        raise ConfigError(f"has {stream.rate} Hz", remedy=f"expected {RATES.start} to {RATES.stop - 1}")
    # A product, because numpy's mean over a short axis takes ten times as long.
    parts = np.full(stream.channels, 1 / stream.channels)
    mono = ((frames @ parts).astype(np.float32) for frames in stream.blocks)
    wanted = rate or stream.rate
    samples = _first(
        mono if round(wanted) == stream.rate else resample_blocks(mono, stream.rate, wanted), most
    )
    if not len(samples):
        raise ConfigError("has no samples")
    if not np.isfinite(samples).all():
        raise ConfigError("has samples that are not finite numbers")
    return Sound(samples, wanted, stream.channels, stream.unfinished)


def _first(blocks: Iterable[Samples], most: int | None) -> Samples:
    """All samples, or the first ones; an hour of them is in memory once."""
    raw = bytearray()
    for block in blocks:
        raw += block.data
        if most is not None and len(raw) >= 4 * most:
            del raw[4 * most :]
            break
    return np.frombuffer(raw, np.float32)


def _other(file: BinaryIO, head: bytes) -> SoundStream:
    """A recording that libsndfile reads."""
    if head[4:8] == b"ftyp" or head.startswith(_AAC):
        raise ConfigError("is AAC or another form that is not read", remedy=CONVERT)
    # Imported here: an extra, which plain WAV files do without.
    try:
        import soundfile
    except (ImportError, OSError) as error:
        raise ConfigError(
            "is not a WAV file of plain samples", remedy=f"other recordings need {INSTALL}"
        ) from error
    file.seek(0)
    try:
        found = soundfile.SoundFile(file)
    except soundfile.SoundFileError as error:
        why = getattr(error, "error_string", error)
        raise ConfigError(f"is not a recording that can be read: {why}") from error
    if found.channels > MAX_CHANNELS:
        raise ConfigError(f"has {found.channels} channels", remedy=f"expected 1 to {MAX_CHANNELS}")
    return SoundStream(found.samplerate, found.channels, _blocks_of(found))


def _blocks_of(sound: "SoundFile") -> Iterator[Frames]:
    from soundfile import SoundFileError

    try:
        while len(frames := sound.read(BLOCK // sound.channels, always_2d=True)):
            yield frames
    except SoundFileError as error:
        raise ConfigError(f"cannot be read to its end: {error}") from error
