"""Recordings of other kinds than WAV: as libsndfile reads them, from files and bodies; else with a remedy."""

import io
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from PIL import Image

from edge_client.data.sounds.sound_files import is_sound, read_sound
from schemas.errors import ConfigError
from tests.edge_client.data.sounds.sound_bytes import pcm, tone, wav_bytes

KINDS = {
    "flac": ("FLAC", "PCM_24"),
    "ogg": ("OGG", "VORBIS"),
    "opus": ("OGG", "OPUS"),
    "mp3": ("MP3", "MPEG_LAYER_III"),
    "aiff": ("AIFF", "PCM_16"),
    "au": ("AU", "PCM_16"),
    "caf": ("CAF", "PCM_24"),
    "w64": ("W64", "FLOAT"),
    "wav": ("WAV", "MS_ADPCM"),
}


def sound_bytes(ending: str, samples: np.ndarray, rate: int = 16_000) -> bytes:
    kind, coding = KINDS[ending]
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=kind, subtype=coding)
    return file.getvalue()


@pytest.mark.parametrize("ending", KINDS)
def test_a_recording_of_any_kind_is_what_libsndfile_reads(ending: str, tmp_path: Path) -> None:
    data = sound_bytes(ending, np.stack([tone(300, 0.2, 16_000), tone(900, 0.2, 16_000)], axis=1))
    expected, rate = soundfile.read(io.BytesIO(data))
    (tmp_path / f"a.{ending}").write_bytes(data)
    assert is_sound(data[:20])
    for source in (tmp_path / f"a.{ending}", io.BytesIO(data)):
        sound = read_sound(source)
        assert (sound.rate, sound.channels) == (rate, 2)
        np.testing.assert_allclose(sound.samples, expected.mean(axis=1), rtol=0, atol=1e-6)


@pytest.mark.parametrize("ending", KINDS)
def test_the_first_samples_are_the_same_as_of_the_whole(ending: str) -> None:
    data = sound_bytes(ending, tone(300, 1.0, 16_000))
    whole = read_sound(io.BytesIO(data), rate=11_025).samples
    first = read_sound(io.BytesIO(data), rate=11_025, most=777).samples
    np.testing.assert_array_equal(first, whole[:777])


@pytest.mark.parametrize("ending", KINDS)
def test_without_libsndfile_the_remedy_is_named(ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = sound_bytes(ending, tone(300, 0.2, 16_000))
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(ConfigError, match=r"is not a WAV file of plain samples.*edge-federation\[audio\]"):
        read_sound(io.BytesIO(data))


@pytest.mark.parametrize("head", [b"\0\0\0\x1cftypM4A \0\0\0\0M4A isom", b"\xff\xf1" + bytes(30)])
def test_aac_is_refused_with_a_remedy(head: bytes) -> None:
    assert is_sound(head[:20])
    with pytest.raises(ConfigError, match="is AAC or another form that is not read: convert it to FLAC"):
        read_sound(io.BytesIO(head))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF"])
def test_a_picture_is_no_recording(kind: str) -> None:
    file = io.BytesIO()
    Image.new("RGB", (16, 16)).save(file, kind)
    assert not is_sound(file.getvalue()[:20])


def test_what_is_no_recording_says_so(tmp_path: Path) -> None:
    (tmp_path / "x.wav").write_bytes(b"RIFF no")
    with pytest.raises(
        ConfigError, match=r"x\.wav is not a recording that can be read: Format not recognised"
    ):
        read_sound(tmp_path / "x.wav")
    with pytest.raises(ConfigError, match=r"none\.wav cannot be read: No such file or directory"):
        read_sound(tmp_path / "none.wav")


def test_a_flac_recording_that_is_cut_off_is_broken() -> None:
    data = sound_bytes("flac", np.random.default_rng(0).uniform(-1, 1, 50_000))
    with pytest.raises(ConfigError, match="the body cannot be read to its end"):
        read_sound(io.BytesIO(data[: len(data) // 2]))


def test_channels_are_averaged() -> None:
    left = tone(440, 0.01)
    data = wav_bytes(pcm(np.stack([left, -left], axis=1), 16), channels=2)
    assert np.abs(read_sound(io.BytesIO(data)).samples).max() < 1e-4
