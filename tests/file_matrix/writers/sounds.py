"""Folders of recordings, as libraries write them."""

import wave
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.file_matrix.rows import Rows, Truth
from tests.file_matrix.writers.tones import LENGTH, RATE, SECONDS, Array, in_numbers, sound_row, write_tones

SOUNDS = Rows()
_sounds = partial(sound_row, SOUNDS)


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
                numbers = in_numbers(samples, bits).astype("<i4")
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
            numbers = in_numbers(samples, int(dtype[3:]))
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
