"""Folders of recordings, as programs write them."""

import struct
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.file_matrix.programs import run
from tests.file_matrix.rows import Rows, Truth, make_old
from tests.file_matrix.writers.tones import RATE, SECONDS, SOURCE, Array, by_scipy, in_examples, sound_row

SOUND_PROGRAMS = Rows()
_sounds = partial(sound_row, SOUND_PROGRAMS)


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

    @SOUND_PROGRAMS.row(kind, "espeak-ng", SOURCE, requests="")
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
