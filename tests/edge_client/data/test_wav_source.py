"""Recordings as examples: formats, names, parts, rates; errors name the file and the remedy."""

import io
import struct
import wave
from pathlib import Path

import numpy as np
import pytest

from edge_client.data.sources import load_source
from edge_client.data.wav_source import read_wav, resampled
from schemas.errors import ConfigError


def write_wav(target, samples, *, rate: int = 8000, width: int = 2, channels: int = 1) -> None:
    """Samples from -1 to 1, [N] or [N, channels], as whole numbers of `width` bytes."""
    scaled = np.round(np.asarray(samples) * (2 ** (8 * width - 1) - 1)).astype(np.int64)
    if width == 1:
        data = (scaled + 128).astype(np.uint8).tobytes()
    else:
        data = b"".join(int(value).to_bytes(width, "little", signed=True) for value in scaled.reshape(-1))
    with wave.open(str(target) if isinstance(target, Path) else target, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(data)


def tone(hertz: float, seconds: float, rate: int = 8000) -> np.ndarray:
    return 0.5 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)


@pytest.fixture
def spoken(tmp_path: Path) -> Path:
    folder = tmp_path / "spoken"
    folder.mkdir()
    for label in ("no", "yes"):
        for speaker in ("ann", "bob"):
            for index in range(3):
                write_wav(folder / f"{label}_{speaker}_{index}.wav", tone(200, 0.1))
    return folder


NAME = "name={label}_{speaker}_{index}"


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_samples_of_any_width_are_read(tmp_path: Path, width: int) -> None:
    samples = tone(440, 0.05)
    write_wav(tmp_path / "a.wav", samples, width=width)
    np.testing.assert_allclose(read_wav(tmp_path / "a.wav"), samples, atol=2 ** (1.5 - 8 * width) + 1e-7)


def test_channels_are_averaged(tmp_path: Path) -> None:
    stereo = np.stack([tone(440, 0.01), -tone(440, 0.01)], axis=1)
    write_wav(tmp_path / "a.wav", stereo, channels=2)
    assert np.abs(read_wav(tmp_path / "a.wav")).max() < 1e-4


def test_another_rate_is_resampled() -> None:
    at_8000, at_16000 = tone(300, 0.2), tone(300, 0.2, 16_000)
    slower = resampled(at_16000, 2)
    assert len(slower) == pytest.approx(len(at_8000), abs=1)
    np.testing.assert_allclose(slower[10:-10], at_8000[10 : len(slower) - 10], atol=0.05)
    faster = resampled(at_8000, 0.5)
    np.testing.assert_allclose(faster[20:-20], at_16000[20 : len(faster) - 20], atol=0.01)


def test_only_the_samples_that_are_wanted_are_read() -> None:
    body = io.BytesIO()
    write_wav(body, tone(300, 1.0, 16_000), rate=16_000)
    body.seek(0)
    assert len(read_wav(body, rate=8000, most=100)) == 100


def test_names_give_labels_and_the_order_of_groups(spoken: Path) -> None:
    data = load_source(f"wav:{spoken}?{NAME}&group=speaker&seconds=0.2")
    assert data.class_names == ("no", "yes")
    assert data.images.shape == (12, 1, 1600)
    # Six recordings of ann, then six of bob.
    assert data.labels.tolist() == [0, 0, 0, 1, 1, 1] * 2
    assert data.preprocessing.rate == 8000
    assert np.abs(data.images[0, 0, 800:]).max() == 0


def test_a_rule_makes_the_test_part(spoken: Path) -> None:
    source = f"wav:{spoken}?{NAME}&test=index<1"
    assert len(load_source(source, split="test")) == 4
    assert len(load_source(source, split="train")) == 8


def test_one_group_alone_can_be_read(spoken: Path) -> None:
    assert len(load_source(f"wav:{spoken}?{NAME}&only=speaker:bob")) == 6


def test_without_a_pattern_folders_are_classes(tmp_path: Path) -> None:
    for name in ("dog", "cat"):
        (tmp_path / name).mkdir()
        write_wav(tmp_path / name / "1.wav", tone(300, 1.5))
    data = load_source(f"wav:{tmp_path}")
    assert data.class_names == ("cat", "dog")
    assert data.images.shape == (2, 1, 8000)


WRONG = [
    ("name={speaker}_{index}", r"has no \{label\}, which names the class"),
    ("name={label}-{speaker}", r"no_ann_0\.wav is not named \{label\}-\{speaker\}\.wav: rename it"),
    (f"{NAME}&group=room", r"no field 'room' in the names: label, speaker, index"),
    (f"{NAME}&only=speaker:eve", r"no recording has speaker:eve: the values are ann, bob"),
    (f"{NAME}&test=index", r"test=index is not of the form FIELD<NUMBER"),
    (f"{NAME}&test=speaker<5", r"'speaker' is 'ann', no number for test=speaker<5"),
    (f"{NAME}&seconds=0", r"seconds=0 is not above 0"),
    (f"{NAME}&rate=fast", r"rate=fast is no number of Hz"),
    ("", r"has no recordings: expected WAV files in its sub-folders, one for each class"),
    (f"{NAME}&sped=1", r"no option 'sped'"),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_what_cannot_be_read_says_why(spoken: Path, options: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_source(f"wav:{spoken}?{options}")


def test_files_of_several_rates_are_refused_unless_one_is_stated(spoken: Path) -> None:
    write_wav(spoken / "yes_eve_0.wav", tone(300, 0.1, 16_000), rate=16_000)
    with pytest.raises(ConfigError, match=r"yes_eve_0\.wav has 16000 Hz and .* 8000: state rate=8000"):
        load_source(f"wav:{spoken}?{NAME}")
    assert len(load_source(f"wav:{spoken}?{NAME}&rate=8000")) == 13


def test_a_file_that_is_no_recording_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.wav").write_bytes(b"RIFF no")
    with pytest.raises(ConfigError, match=r"x\.wav is no WAV file"):
        load_source(f"wav:{tmp_path}")
    with pytest.raises(ConfigError, match="there is no such folder"):
        load_source(f"wav:{tmp_path / 'none'}")


def test_a_rate_that_would_become_gigabytes_is_refused() -> None:
    body = io.BytesIO()
    write_wav(body, tone(300, 0.1), rate=3)
    body.seek(0)
    with pytest.raises(ConfigError, match="the body has 3 Hz: expected 1000 to 768000"):
        read_wav(body, rate=8000)


def header(*, width: int = 2, channels: int = 1, data: bytes = b"") -> bytes:
    """A WAV file with this header, whatever its data."""
    rate = 8000
    kind = struct.pack(
        "<HHIIHH", 1, channels, rate, rate * width * channels & 0xFFFFFFFF, width * channels, 8 * width
    )
    body = b"WAVEfmt " + struct.pack("<I", 16) + kind + b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (header(data=b"\x00"), "the body has no samples"),
        (header(), "the body has no samples"),
        (header(width=5, data=bytes(50)), "(no WAV file|channels of 40 bits)"),
        (header(channels=65, data=bytes(260)), "65 channels of 16 bits"),
        (b"RIFF", "no WAV file"),
    ],
)
def test_a_damaged_body_is_the_senders_error(body: bytes, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_wav(io.BytesIO(body), rate=16_000)


def test_a_sample_that_is_cut_off_is_left_out() -> None:
    assert len(read_wav(io.BytesIO(header(data=bytes(5))))) == 2


def test_endings_may_be_in_capitals(tmp_path: Path) -> None:
    (tmp_path / "dog").mkdir()
    write_wav(tmp_path / "dog" / "1.WAV", tone(300, 0.1))
    assert len(load_source(f"wav:{tmp_path}")) == 1
