"""Spoken digits: the filters, the spectrum of a tone, the order of recordings, and missing data."""

import wave
from pathlib import Path

import numpy as np
import pytest

from edge_client.data.partition import Partition, partition_indices
from edge_client.data.sources import load_source
from edge_server.simulation.experiments.cells import RunSelection
from edge_server.simulation.experiments.compare import checked_plan
from edge_server.simulation.experiments.experiment import load_experiment
from edge_server.simulation.experiments.spoken_digits import (
    RATE,
    log_mel,
    mel_filters,
    read_wave,
    spoken_digits,
    stretch_rows,
)
from schemas.errors import ConfigError

SOURCE = "python:edge_server.simulation.experiments.spoken_digits:spoken_digits"


def tone(hertz: float, seconds: float = 0.5) -> np.ndarray:
    return 0.5 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * RATE)) / RATE)


def write_wave(path: Path, samples: np.ndarray, *, rate: int = RATE) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((samples * 2**15).astype("<i2").tobytes())


def test_mel_filters_by_hand() -> None:
    # Half the rate is 2100 Hz: mel(2100) = 2595 log10(4). One filter has its edges at 0 and 2100 Hz and its
    # centre at half of that in mel, where 1 + f / 700 = 2: 700 Hz. Lines lie every 525 Hz from 0 to 2100 Hz:
    # 525 / 700 = 3/4 on the way up, 1050 / 1400 = 3/4 and 525 / 1400 = 3/8 on the way down.
    found = mel_filters(bands=1, points=8, rate=4200)
    assert found == pytest.approx(np.array([[0, 0.75, 0.75, 0.375, 0]]))


def test_neighbouring_filters_add_up_to_one_between_the_first_and_the_last_centre() -> None:
    filters = mel_filters()
    assert filters.shape == (32, 129)
    lines = np.arange(129) * 8000 / 256
    # HTK's scale, solved for Hz: the centres of 32 bands lie at 1/33 to 32/33 of mel(4000) = 2146.
    centres = 700 * (10 ** (np.array([1, 32]) / 33 * np.log10(1 + 4000 / 700)) - 1)
    inside = (lines >= centres[0]) & (lines <= centres[1])
    assert filters[:, inside].sum(0) == pytest.approx(1)
    assert (filters.sum(1) > 0).all()


@pytest.mark.parametrize("hertz", [250, 1000, 3000])
def test_a_tone_is_loudest_in_the_band_that_contains_it(tmp_path: Path, hertz: int) -> None:
    write_wave(tmp_path / "tone.wav", tone(hertz))
    spectrum = log_mel(read_wave(tmp_path / "tone.wav"))
    assert (spectrum.shape, spectrum.dtype) == ((32, 32), np.float32)
    # Centres are evenly spaced in mel: 33 steps to 4000 Hz, the first centre is one step from 0 Hz.
    place = 33 * np.log10(1 + hertz / 700) / np.log10(1 + 4000 / 700) - 1
    assert np.abs(spectrum.argmax(0) - place).max() <= 1


def test_silence_is_the_logarithm_of_the_floor() -> None:
    # ln(1e-6) = -13.8155; (-13.8155 + 5) / 4 = -2.2039. A recording may be shorter than a window.
    assert log_mel(np.zeros(10)) == pytest.approx(np.full((32, 32), -2.2039), abs=1e-4)


def test_rows_are_stretched_linearly() -> None:
    rows = np.array([[0.0, 1.0], [2.0, 5.0]])
    assert stretch_rows(rows, 3).tolist() == [[0, 1], [1, 3], [2, 5]]
    assert stretch_rows(rows[:1], 2).tolist() == [[0, 1], [0, 1]]
    assert stretch_rows(np.arange(5.0)[:, None], 3).tolist() == [[0], [2], [4]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two speakers with digits 0 to 9 and the indexes 4 (for testing), 5, and 10."""
    for speaker in ("theo", "ann"):
        for index in (4, 5, 10):
            for digit in range(10):
                hertz = 300 + 100 * digit
                write_wave(
                    tmp_path / "fsdd" / "recordings" / f"{digit}_{speaker}_{index}.wav", tone(hertz, 0.2)
                )
    return tmp_path


def test_recordings_are_in_the_order_speaker_index_digit(root: Path) -> None:
    data = load_source(SOURCE, data_root=root)
    assert data.images.shape == (40, 1, 32, 32)
    assert data.images.dtype == np.float32
    assert data.class_names[:2] == ("zero", "one")
    assert data.labels.tolist() == [*range(10)] * 4
    # 300 + 100 digit Hz: the digits differ, and the first ten clips are those of index 5 again at index 10.
    assert (data.images[:10] == data.images[10:20]).all()
    assert len(spoken_digits("test", root)) == 20


def test_blocks_give_each_client_one_speaker_and_each_digit_equally_often(root: Path) -> None:
    labels = spoken_digits("train", root).labels
    shares = partition_indices(labels, Partition("blocks"), count=4, seed=0)
    assert [sorted(labels[share]) for share in shares] == [[*range(10)]] * 4


def test_missing_recordings_and_others_are_refused_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^no spoken digits in .*recordings: clone"):
        load_source(SOURCE, data_root=tmp_path)
    write_wave(tmp_path / "fast.wav", tone(400), rate=16000)
    with pytest.raises(ConfigError, match="is not of 8 kHz and one channel"):
        read_wave(tmp_path / "fast.wav")


def test_a_league_without_the_recordings_leaves_their_column_out_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "league.toml").write_text(f"""
title = "one column"
[[columns]]
label = "digits"
settings.data = {{ source = "digits" }}
[[columns]]
label = "spoken"
settings.data = {{ source = "{SOURCE}", data-root = "{tmp_path}" }}
[[rows]]
label = "fedavg"
recipe = "fedavg"
""")
    plan = checked_plan(load_experiment(str(tmp_path / "league.toml")), RunSelection())
    assert [cell.column for cell in plan.cells] == ["digits"]
    assert any("spoken is left out: no spoken digits in" in note for note in plan.notes)
