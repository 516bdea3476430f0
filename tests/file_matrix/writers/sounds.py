"""Folders of recordings, as libraries, programs and recorders write them."""

import struct
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.file_matrix.programs import run
from tests.file_matrix.rows import Rows, Truth, make_old
from tests.file_matrix.writers.tones import (
    LENGTH,
    RATE,
    SECONDS,
    Array,
    by_scipy,
    by_soundfile,
    in_examples,
    write_tones,
)

SOUNDS = Rows()
SOURCE = f"wav:FOLDER?seconds={SECONDS}"


def _sounds(
    kind: str,
    writer: str,
    ending: str,
    save: Callable[[Path, Array], None],
    *,
    channels: int = 1,
    read: Callable[[Path], Array] = by_soundfile,
    tolerance: float = 1e-6,
    source: str = SOURCE,
    **more: Any,
) -> None:
    """A row of four recordings in two classes."""

    @SOUNDS.row(kind, writer, source, requests="*/*", **more)
    def write(folder: Path) -> Truth:
        return write_tones(folder, ending, save, read, channels=channels, tolerance=tolerance)


def _in_numbers(samples: Array, bits: int) -> Array:
    return np.round(samples * (2 ** (bits - 1) - 1)).astype("<i4" if bits > 16 else "<i2")


def _soundfile(ending: str, form: str, subtype: str, **more: Any) -> None:
    def save(path: Path, samples: Array) -> None:
        import soundfile

        soundfile.write(path, samples, RATE, subtype=subtype, format=form)

    words = " ".join(
        [form, subtype, *(f"{count} channels" for count in [more.get("channels", 1)] if count > 1)]
    )
    _sounds(words, "soundfile", ending, save, **more)


for subtype in ("PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW", "IMA_ADPCM"):
    _soundfile("wav", "WAV", subtype)
_soundfile("wav", "WAV", "PCM_16", channels=2)
_soundfile("wav", "WAVEX", "PCM_24", channels=4)
_soundfile("wav", "WAVEX", "FLOAT", channels=2)
_soundfile("wav", "RF64", "PCM_16")
_soundfile("w64", "W64", "PCM_24")
_soundfile("flac", "FLAC", "PCM_16")
_soundfile("flac", "FLAC", "PCM_24", channels=2)
_soundfile("ogg", "OGG", "VORBIS")
_soundfile("opus", "OGG", "OPUS")
_soundfile("mp3", "MP3", "MPEG_LAYER_III")
_soundfile("aiff", "AIFF", "PCM_16")
_soundfile("caf", "CAF", "PCM_16")
_soundfile("au", "AU", "PCM_16")


def _wave(bits: int, channels: int = 1) -> None:
    def save(path: Path, samples: Array) -> None:
        with wave.open(str(path), "wb") as file:
            file.setnchannels(channels)
            file.setsampwidth(bits // 8)
            file.setframerate(RATE)
            if bits == 8:
                file.writeframes((np.round(samples * 127) + 128).astype(np.uint8).tobytes())
            else:
                numbers = _in_numbers(samples, bits).astype("<i4")
                file.writeframes(numbers[..., None].view("u1")[..., : bits // 8].tobytes())

    _sounds(f"WAV, {bits} bits, {channels} channels", "wave", "wav", save, channels=channels)


for bits, channels in ((8, 1), (16, 1), (16, 2), (24, 1), (32, 6)):
    _wave(bits, channels)


def _scipy(dtype: str, channels: int = 1) -> None:
    def save(path: Path, samples: Array) -> None:
        from scipy.io import wavfile

        if dtype == "uint8":
            numbers = (np.round(samples * 127) + 128).astype(np.uint8)
        elif dtype.startswith("int"):
            numbers = _in_numbers(samples, int(dtype[3:]))
        else:
            numbers = samples.astype(dtype)
        wavfile.write(path, RATE, numbers)

    _sounds(f"WAV, {dtype}, {channels} channels", "scipy", "wav", save, channels=channels)


for dtype in ("uint8", "int16", "int32", "float32", "float64"):
    _scipy(dtype)
_scipy("float32", 4)


def _wavio(path: Path, samples: Array) -> None:
    import wavio

    wavio.write(str(path), samples, RATE, sampwidth=3)


_sounds("WAV, 24 bits", "wavio", "wav", _wavio)


def _as_wav(samples: Array) -> bytes:
    """Floats of 32 bits as a WAV file, which every program reads."""
    data = samples.astype("<f4").tobytes()
    channels = samples.shape[1]
    form = struct.pack("<HHIIHH", 3, channels, RATE, RATE * 4 * channels, 4 * channels, 32)
    chunks = b"fmt " + struct.pack("<I", 16) + form + b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


def _ffmpeg(kind: str, ending: str, *options: str, to_pipe: bool = False, **more: Any) -> None:
    """A row of ffmpeg's coders, into a file, or through a pipe, where sizes stay unknown."""

    def save(path: Path, samples: Array) -> None:
        command = ("ffmpeg", "-v", "error", "-f", "wav", "-i", "-", *options)
        if to_pipe:
            path.write_bytes(run(*command, "-", stdin=_as_wav(samples)))
        else:
            run(*command, path, stdin=_as_wav(samples))

    _sounds(kind, "ffmpeg", ending, save, **more)


for coder in (
    "pcm_u8",
    "pcm_s16le",
    "pcm_s24le",
    "pcm_s32le",
    "pcm_f32le",
    "pcm_f64le",
    "pcm_alaw",
    "pcm_mulaw",
):
    _ffmpeg(f"WAV, {coder}", "wav", "-c:a", coder)
_ffmpeg("WAV, pcm_s16le, 4 channels", "wav", "-c:a", "pcm_s16le", channels=4)
_ffmpeg("WAV, pcm_s24le, 8 channels", "wav", "-c:a", "pcm_s24le", channels=8)
_ffmpeg("WAV, adpcm_ms", "wav", "-c:a", "adpcm_ms")
_ffmpeg("WAV, adpcm_ima_wav", "wav", "-c:a", "adpcm_ima_wav")
_ffmpeg("WAV, RF64", "wav", "-c:a", "pcm_s16le", "-rf64", "always")
_ffmpeg("WAV with a title", "wav", "-c:a", "pcm_s16le", "-metadata", "title=odd")
_ffmpeg("WAV with a peak envelope", "wav", "-c:a", "pcm_s16le", "-write_peak", "on", "-write_bext", "1")
_ffmpeg(
    "WAV through a pipe, sizes unknown", "wav", "-c:a", "pcm_s16le", "-f", "wav", to_pipe=True, read=by_scipy
)
_ffmpeg("FLAC", "flac", "-c:a", "flac")
_ffmpeg("Ogg Vorbis", "ogg", "-c:a", "libvorbis")
_ffmpeg("Ogg Opus", "opus", "-c:a", "libopus")
_ffmpeg("MP3", "mp3", "-c:a", "libmp3lame")
_ffmpeg("AIFF", "aiff")
_ffmpeg("CAF", "caf", "-c:a", "pcm_s16le")
_ffmpeg("W64", "w64", "-c:a", "pcm_s16le")
_ffmpeg("AU", "au")


def _sox(kind: str, ending: str, *options: str, **more: Any) -> None:
    def save(path: Path, samples: Array) -> None:
        run("sox", "-D", "-t", "wav", "-", *options, path, stdin=_as_wav(samples))

    _sounds(kind, "sox", ending, save, **more)


_sox("WAV, 8 bits", "wav", "-b", "8")
_sox("WAV, 16 bits", "wav", "-b", "16")
_sox("WAV, 24 bits", "wav", "-b", "24")
_sox("WAV, 32 bits", "wav", "-b", "32", "-e", "signed-integer")
_sox("WAV, floats", "wav", "-b", "32", "-e", "floating-point")
_sox("WAV, A-law", "wav", "-e", "a-law")
_sox("WAV, u-law", "wav", "-e", "u-law")
_sox("WAV, 16 bits, 4 channels", "wav", "-b", "16", channels=4)
_sox("WAV, 24 bits, plain header", "wav", "-b", "24", "-t", "wavpcm")
_sox("WAV, big endian (RIFX)", "wav", "-b", "16", "-B")
_sox("FLAC", "flac")
_sox("Ogg Vorbis", "ogg")
_sox("AIFF", "aiff")
_sox("CAF", "caf")
_sox("W64", "w64")


def _encoder(kind: str, writer: str, ending: str, *command: str, **more: Any) -> None:
    """A row of a program that reads a WAV file of 16 bits called `IN` and writes `OUT`."""

    def save(path: Path, samples: Array) -> None:
        import soundfile

        source = path.with_suffix(".source")
        soundfile.write(source, samples, RATE, subtype="PCM_16", format="WAV")
        run(*(str({"IN": source, "OUT": path}.get(word, word)) for word in command))
        source.unlink()

    _sounds(kind, writer, ending, save, **more)


_encoder("FLAC", "flac", "flac", "flac", "--silent", "-o", "OUT", "IN")
_encoder("Ogg Vorbis", "oggenc", "ogg", "oggenc", "-Q", "-o", "OUT", "IN")
_encoder("Ogg Opus", "opusenc", "opus", "opusenc", "--quiet", "IN", "OUT")
_encoder("MP3", "lame", "mp3", "lame", "--quiet", "IN", "OUT")


def _espeak(kind: str, *, to_pipe: bool) -> None:
    """Two words, spoken; the samples of a tone are not used."""

    @SOUNDS.row(kind, "espeak-ng", f"wav:FOLDER?seconds={SECONDS}", requests="")
    def write(folder: Path) -> Truth:
        inputs, labels = [], []
        for name in ("no", "yes"):
            (folder / name).mkdir()
            path = folder / name / "0.wav"
            if to_pipe:
                path.write_bytes(run("espeak-ng", "--stdout", name))
            else:
                run("espeak-ng", "-w", path, name)
            make_old(path)
            inputs.append(in_examples(by_scipy(path), round(22_050 * SECONDS)))
            labels += [name] * len(inputs[-1])
        return Truth(np.concatenate(inputs), labels)


_espeak("WAV, speech", to_pipe=False)
_espeak("WAV, speech through a pipe, sizes unknown", to_pipe=True)


# Recorders that are not here, and recorders that were ended.


def _layout(
    kind: str, writer: str, make: Callable[[Array], bytes], read: Callable[[bytes], Array], **more: Any
) -> None:
    _sounds(
        kind,
        writer,
        "wav",
        lambda path, samples: path.write_bytes(make(samples)) and None,
        read=lambda path: read(path.read_bytes()),
        **more,
    )


def _extensible(samples: Array, bits: int, valid: int) -> bytes:
    """`bits` per sample of which the upper `valid` count, as arrays of microphones write them."""
    numbers = (_in_numbers(samples, valid).astype("<i4") << (bits - valid)).astype("<i4")
    data = numbers[..., None].view("u1")[..., : bits // 8].tobytes()
    channels, width = samples.shape[1], bits // 8
    form = struct.pack("<HHIIHH", 0xFFFE, channels, RATE, RATE * channels * width, channels * width, bits)
    form += struct.pack("<HHI", 22, valid, (1 << channels) - 1)
    form += bytes.fromhex("0100000000001000800000aa00389b71")
    chunks = b"fmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


def _last_words(width: int, channels: int, start: int) -> Callable[[bytes], Array]:
    """Reads whole frames of little-endian numbers behind a header of `start` bytes."""

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
    "WAV, 12 bits in 16",
    "as a 12-bit recorder",
    lambda samples: _extensible(samples, 16, 12),
    _last_words(2, 1, 68),
)


def _ended(sizes: tuple[int, int], odd: bytes = b"", cut: int = 0) -> Callable[[Array], bytes]:
    """A plain WAV file of 16 bits with these sizes in its header, bytes behind it, or less of it."""

    def make(samples: Array) -> bytes:
        data = _in_numbers(samples, 16).tobytes()
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


def _at_8_khz(path: Path) -> Array:
    """Samples at half the rate by scipy."""
    import soundfile
    from scipy import signal

    samples, _ = soundfile.read(path)
    return np.asarray(signal.resample_poly(samples, 1, 2))


@SOUNDS.row(
    "WAV of 16 kHz, taken as 8", "soundfile", f"wav:FOLDER?rate=8000&seconds={SECONDS / 2}", requests="*/*"
)
def _(folder: Path) -> Truth:
    import soundfile

    def save(path: Path, samples: Array) -> None:
        soundfile.write(path, samples[: LENGTH // 2], RATE, subtype="PCM_16")

    truth = write_tones(folder, "wav", save, _at_8_khz, tolerance=0.02)
    return Truth(truth.inputs[..., : LENGTH // 4], truth.labels, truth.tolerance)
