"""Recordings as examples: names, parts, rates, windows, broken files; errors name the file and the remedy."""

import logging
import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile

from edge_client.data import said_once
from edge_client.data.dataset import LabelledData
from edge_client.data.partition import holdout, parse_partition, share
from edge_client.data.sounds import recordings
from edge_client.data.sounds.recordings import cut
from edge_client.data.sources import load_source
from schemas.errors import ConfigError
from tests.edge_client.data.sounds.sound_bytes import pcm, tone, wav_bytes, write_wav
from tests.edge_client.data.sounds.test_sound_files import KINDS


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
        write_wav(tmp_path / name / "1.wav", tone(300, 1.5))
    data = load_source(f"wav:{tmp_path}")
    assert data.class_names == ("cat", "dog")
    # Each gives a whole second, and half a second that is filled with silence.
    assert data.images.shape == (4, 1, 8000)
    assert data.labels.tolist() == [0, 0, 1, 1]


WRONG = [
    ("name={speaker}_{index}", r"has no \{label\}, which names the class"),
    ("name={label}-{speaker}", r"no_ann_0\.wav is not named \{label\}-\{speaker\}\.wav: rename it"),
    (f"{NAME}&group=room", r"no field 'room' in the names: label, speaker, index"),
    (f"{NAME}&only=speaker:eve", r"no recording has speaker:eve"),
    (f"{NAME}&test=index", r"test=index is not of the form FIELD<NUMBER"),
    (f"{NAME}&test=speaker<5", r"'speaker' is not a number for test=speaker<5"),
    (f"{NAME}&seconds=0", r"seconds=0 must be a number from 0\.001 to 3600"),
    (f"{NAME}&rate=fast", r"rate=fast must be a number from 1000 to 768000"),
    (f"{NAME}&rate=3", r"rate=3 must be a number from 1000 to 768000"),
    (f"{NAME}&hop=0", r"hop=0 must be a number from 0\.001 to 3600"),
    (f"{NAME}&broken=2", r"broken=2 must be a number from 0 to 1"),
    (f"{NAME}&test=index<9", r"test=index<9: no recording is for training"),
    ("", r"has \d+ files such as \.wav and no sub-folders, which name the classes: put the files of each"),
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


def test_endings_may_be_in_capitals(tmp_path: Path) -> None:
    write_wav(tmp_path / "dog" / "1.WAV", tone(300, 0.1))
    assert len(load_source(f"wav:{tmp_path}")) == 1


def test_the_folder_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such folder"):
        load_source(f"wav:{tmp_path / 'none'}")


WINDOWS = [
    # A second of 10 samples: what is left is an example if at least 5 of its samples are sound.
    (3, 10, 10, 1),
    (10, 10, 10, 1),
    (14, 10, 10, 1),
    (15, 10, 10, 2),
    (20, 10, 10, 2),
    (106, 10, 10, 11),
    # A hop of 4: each next example adds 4 samples, 2 of which must be there.
    (10, 10, 4, 1),
    (11, 10, 4, 1),
    (12, 10, 4, 2),
    (16, 10, 4, 3),
    # A hop of 25 leaves 15 samples out between examples.
    (29, 10, 25, 1),
    (30, 10, 25, 2),
]


@pytest.mark.parametrize(("samples", "length", "hop", "count"), WINDOWS)
def test_a_recording_gives_all_its_examples(samples: int, length: int, hop: int, count: int) -> None:
    sound = np.arange(1, samples + 1, dtype=np.float32)
    images = cut(sound, length, hop)
    assert images.shape == (count, 1, length)
    for place, image in enumerate(images[:, 0]):
        piece = sound[place * hop : place * hop + length]
        assert image[: len(piece)].tolist() == piece.tolist()
        assert not image[len(piece) :].any()


@pytest.fixture
def long(tmp_path: Path) -> Path:
    """Five recordings of 2.6 s of each of two classes, no two seconds alike."""
    random = np.random.default_rng(0)
    for name in ("cat", "dog"):
        for number in range(5):
            write_wav(tmp_path / "long" / name / f"{number}.wav", random.uniform(-0.5, 0.5, 2600), rate=1000)
    return tmp_path / "long"


@pytest.mark.parametrize("peak", [2.5, 32_000.0])
def test_floats_far_beyond_full_scale_are_said(
    spoken: Path, caplog: pytest.LogCaptureFixture, peak: float
) -> None:
    said_once.say_once.cache_clear()
    path = spoken / "no_bob_1.wav"
    path.write_bytes(wav_bytes((-2 * peak * tone(200, 0.1)).astype("<f4").tobytes(), tag=3, bits=32))
    load_source(f"wav:{spoken}?{NAME}")
    said = "1 of 12 recordings with samples up to 32000, where 1 is full scale: save them as whole numbers"
    assert (said in caplog.text and str(path) in caplog.text) is (peak > 100)


def test_all_of_a_long_recording_is_used_and_the_counts_are_said(
    long: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    data = load_source(f"wav:{long}")
    assert f"wav:{long}: 10 recordings, 30 examples of 1 s" in caplog.messages
    assert data.origins is not None
    assert data.origins.tolist() == np.repeat(np.arange(10), 3).tolist()
    whole, _ = soundfile.read(long / "cat" / "1.wav", dtype="float32")
    np.testing.assert_array_equal(data.images[3:5, 0].reshape(-1), whole[:2000])
    np.testing.assert_array_equal(data.images[5, 0], np.pad(whole[2000:], (0, 400)))


@pytest.mark.parametrize(("option", "count"), [("hop=none", 10), ("hop=0.5", 40), ("seconds=3", 10)])
def test_a_hop_says_where_examples_begin(long: Path, option: str, count: int) -> None:
    # 0.5: four of each, from 0 to 1.5 s; one at 2 s would add 0.1 s alone.
    data = load_source(f"wav:{long}?{option}")
    assert len(data) == count
    assert (data.origins is None) == (count == 10)


def sides(data: LabelledData) -> set[int]:
    assert data.origins is not None
    return set(data.origins.tolist())


def test_all_examples_of_a_recording_are_on_one_side(long: Path) -> None:
    data = load_source(f"wav:{long}")
    parts = [load_source(f"wav:{long}#{split}") for split in ("train", "test")]
    for train, held in (holdout(data, seed=1), parts):
        assert sides(train).isdisjoint(sides(held))
        # One of five recordings of each class, 3 examples each.
        assert (len(train), np.bincount(held.labels).tolist()) == (24, [3, 3])
    shares = [
        share(data, parse_partition("dirichlet(1)"), index=index, count=3, seed=0) for index in range(3)
    ]
    assert sum(map(len, shares)) == 30
    assert sum(len(sides(mine)) for mine in shares) == 10


def test_of_a_class_with_one_recording_a_part_is_held_out_which_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    random = np.random.default_rng(0)
    for name in ("cat", "dog"):
        write_wav(tmp_path / name / "1.wav", random.uniform(-0.5, 0.5, 10_000), rate=1000)
    train, held = holdout(load_source(f"wav:{tmp_path}"), seed=1)
    assert (np.bincount(train.labels).tolist(), np.bincount(held.labels).tolist()) == ([8, 8], [2, 2])
    assert "there is one recording alone of 'cat', 'dog': a part of it is held out" in caplog.text


@pytest.mark.parametrize("names", [("train", "validation"), ("training", "testing"), ("Train", "val")])
@pytest.mark.parametrize("pattern", ["", "?name={label}_{index}"])
def test_the_usual_parts_are_parts_and_service_files_are_no_data(
    tmp_path: Path, names: tuple[str, str], pattern: str
) -> None:
    for part, count in zip(names, (3, 2), strict=True):
        for label in ("no", "yes"):
            for index in range(count):
                write_wav(tmp_path / part / label / "ann" / f"{label}_{index}.wav", tone(300, 0.1))
        (tmp_path / part / "yes" / "._yes_0.wav").write_bytes(b"\0\5\x16\7")
    write_wav(tmp_path / "_background_noise_" / "hum.wav", tone(50, 9))
    train, test = (load_source(f"wav:{tmp_path}{pattern}", split=split) for split in ("train", "test"))
    assert train.class_names == test.class_names == ("no", "yes")
    assert (len(train), len(test)) == (6, 4)
    with pytest.raises(ConfigError, match="folders for training and testing: leave out test=index<1"):
        load_source(f"wav:{tmp_path}?name={{label}}_{{index}}&test=index<1")


def test_recordings_of_all_kinds_are_one_source(tmp_path: Path) -> None:
    for label in ("no", "yes"):
        write_wav(tmp_path / label / "a.wav", tone(300, 0.5))
        for ending, (kind, coding) in KINDS.items():
            path, rate = tmp_path / label / f"b.{ending.upper()}", 8000
            soundfile.write(path, tone(300, 0.5), rate, format=kind, subtype=coding)
    assert len(load_source(f"wav:{tmp_path}?seconds=0.5&rate=8000")) == 2 * (1 + len(KINDS))


def without_libsndfile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "soundfile", None)


def test_what_the_base_install_cannot_read_is_counted_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    without_libsndfile(monkeypatch)
    for label in ("no", "yes"):
        write_wav(tmp_path / label / "a.wav", tone(300, 0.5))
        (tmp_path / label / "b.flac").write_bytes(b"fLaC")
    (tmp_path / "yes" / "c.m4a").write_bytes(b"")
    assert len(load_source(f"wav:{tmp_path}")) == 2
    assert "2 .flac (pip install 'edge-federation[audio]'), 1 .m4a (convert it to FLAC" in caplog.text
    (tmp_path / "yes" / "a.wav").unlink()
    with pytest.raises(
        ConfigError, match=r"class 'yes' has no file that can be read: 1 \.flac \(pip install"
    ):
        load_source(f"wav:{tmp_path}")


def test_a_class_by_names_never_disappears_either(
    spoken: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    without_libsndfile(monkeypatch)
    (spoken / "yes_eve_0.flac").write_bytes(b"fLaC")
    assert len(load_source(f"wav:{spoken}?{NAME}")) == 12
    assert "left out: 1 .flac (pip install 'edge-federation[audio]')" in caplog.text
    (spoken / "maybe_eve_0.flac").write_bytes(b"fLaC")
    with pytest.raises(
        ConfigError, match=r"maybe_eve_0\.flac: class 'maybe' has no file that can be read: pip"
    ):
        load_source(f"wav:{spoken}?{NAME}")


def test_a_broken_recording_is_left_out_and_counted(spoken: Path) -> None:
    (spoken / "no_ann_0.wav").write_bytes(b"RIFF")
    data = load_source(f"wav:{spoken}?{NAME}")
    assert len(data) == 11
    assert data.skipped is not None
    assert (data.skipped.files, data.skipped.of) == (1, 12)
    assert "no_ann_0.wav is not a recording" in data.skipped.first
    (spoken / "no_ann_1.wav").write_bytes(wav_bytes(b""))
    with pytest.raises(ConfigError, match=r"2 of 12 files are broken, more than broken=0\.1 allows"):
        load_source(f"wav:{spoken}?{NAME}")
    assert len(load_source(f"wav:{spoken}?{NAME}&broken=0.2")) == 10


def test_a_class_of_broken_recordings_is_refused(long: Path) -> None:
    write_wav(long / "eel" / "0.wav", [])
    with pytest.raises(ConfigError, match=r"no recording of class 'eel' can be read.*0\.wav has no samples"):
        load_source(f"wav:{long}")


def test_what_is_being_recorded_waits_and_what_was_cut_off_is_used(long: Path) -> None:
    path = long / "dog" / "9.wav"
    path.write_bytes(wav_bytes(pcm(tone(300, 1, 1000), 16), rate=1000, size=0, whole=0))
    data = load_source(f"wav:{long}")
    assert (len(data), data.settles_at) == (30, path.stat().st_mtime + 10)
    assert data.skipped is not None
    assert "9.wav is being recorded" in data.skipped.first
    os.utime(path, (time.time() - 60,) * 2)
    data = load_source(f"wav:{long}")
    assert (len(data), data.settles_at, data.skipped) == (31, None, None)


def test_that_the_channels_of_an_array_are_averaged_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    array = np.stack([tone(300, 0.5), *[np.zeros(4000)] * 3], axis=1)
    write_wav(tmp_path / "low" / "1.wav", array, channels=4)
    data = load_source(f"wav:{tmp_path}?seconds=0.5")
    np.testing.assert_allclose(data.images[0, 0], tone(300, 0.5) / 4, atol=2**-16)
    assert "1 of 1 recording with several channels: their mean is used" in caplog.text
