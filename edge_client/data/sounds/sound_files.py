"""One recording of any kind of file: WAV by our own reader, all else by libsndfile (extra `audio`).

Training, `edge-client infer` and the services read recordings here, so that all have the same samples.
"""

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from edge_client.data.sounds.resampling import Samples, resampled
from edge_client.data.sounds.wav_files import BLOCK, MAX_CHANNELS, Frames, SoundStream, is_wav, open_wav
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from soundfile import SoundFile  # type: ignore[import-untyped]

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
ENDINGS = frozenset({*PLAIN, *REMEDIES})
"""Endings of all recordings, readable or not."""
RATES = range(1000, 768_001)
"""Sampling rates in Hz that are read; a few bytes of another could become gigabytes."""
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
        raise ConfigError(f"has {stream.rate} Hz: expected {RATES.start} to {RATES.stop - 1}")
    # A product, because numpy's mean over a short axis takes ten times as long.
    parts = np.full(stream.channels, 1 / stream.channels)
    mono = ((frames @ parts).astype(np.float32) for frames in stream.blocks)
    wanted = rate or stream.rate
    samples = _first(mono if round(wanted) == stream.rate else resampled(mono, stream.rate, wanted), most)
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
        raise ConfigError(f"is AAC or another form that is not read: {CONVERT}")
    # Imported here: an extra, which plain WAV files do without.
    try:
        import soundfile
    except (ImportError, OSError) as error:
        raise ConfigError(f"is no WAV file of plain samples: other recordings need {INSTALL}") from error
    file.seek(0)
    try:
        found = soundfile.SoundFile(file)
    except soundfile.SoundFileError as error:
        why = getattr(error, "error_string", error)
        raise ConfigError(f"is no recording that can be read: {why}") from error
    if found.channels > MAX_CHANNELS:
        raise ConfigError(f"has {found.channels} channels: expected 1 to {MAX_CHANNELS}")
    return SoundStream(found.samplerate, found.channels, _blocks_of(found))


def _blocks_of(sound: "SoundFile") -> Iterator[Frames]:
    from soundfile import SoundFileError

    try:
        while len(frames := sound.read(BLOCK // sound.channels, always_2d=True)):
            yield frames
    except SoundFileError as error:
        raise ConfigError(f"cannot be read to its end: {error}") from error
