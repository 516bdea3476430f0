"""Another rate: the filter of scipy, whatever the ratio and wherever the blocks are cut."""

import numpy as np
import pytest

from edge_client.data.sounds.sound_files import MAX_TERM, resample_blocks

RATIOS = [
    (48_000, 16_000, 1, 3),
    (44_100, 16_000, 160, 441),
    (22_050, 8000, 160, 441),
    (8000, 16_000, 2, 1),
    (16_000, 44_100, 441, 160),
    (11_025, 8000, 320, 441),
    (44_056, 8000, 1000, 5507),
    (768_000, 1000, 1, 768),
]


def of_blocks(samples: np.ndarray, own: int, rate: int, size: int) -> np.ndarray:
    blocks = [samples[start : start + size] for start in range(0, len(samples), size)]
    return np.concatenate(list(resample_blocks(blocks, own, rate)))


@pytest.mark.parametrize(("own", "rate", "up", "down"), RATIOS)
@pytest.mark.parametrize("count", [1, 5, 4000])
def test_the_samples_are_those_of_scipy(own: int, rate: int, up: int, down: int, count: int) -> None:
    # Imported here: it takes a second of processor time in each worker that collects the tests.
    from scipy.signal import resample_poly

    noise = np.random.default_rng(0).uniform(-1, 1, count).astype(np.float32)
    expected = resample_poly(noise.astype(np.float64), up, down)
    for size in (count, 173):
        found = of_blocks(noise, own, rate, size)
        assert len(found) == len(expected)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_the_beginning_is_the_same_however_much_is_read() -> None:
    noise = np.random.default_rng(0).uniform(-1, 1, 48_000).astype(np.float32)
    whole = of_blocks(noise, 48_000, 16_000, len(noise))
    first = next(iter(resample_blocks([noise[:4800], noise[4800:]], 48_000, 16_000)))
    np.testing.assert_allclose(first, whole[: len(first)], rtol=0, atol=1e-6)


def test_a_tone_above_half_the_new_rate_does_not_fold() -> None:
    time = np.arange(48_000) / 48_000
    tone = np.sin(2 * np.pi * 12_000 * time).astype(np.float32)
    # Away from the ends, where the tone begins and ends abruptly. By scipy it is -67.8 dB.
    found = of_blocks(tone, 48_000, 16_000, 48_000)[100:-100]
    assert 20 * np.log10(np.abs(found).max()) < -60


def test_a_tone_below_it_stays_as_it_is() -> None:
    time = np.arange(44_100) / 44_100
    found = of_blocks(np.sin(2 * np.pi * 3000 * time).astype(np.float32), 44_100, 16_000, 44_100)
    expected = np.sin(2 * np.pi * 3000 * np.arange(16_000) / 16_000)
    np.testing.assert_allclose(found[100:-100], expected[100:-100], rtol=0, atol=2e-3)


def test_rates_without_a_common_divisor_give_a_filter_of_bounded_size() -> None:
    # 8,000 of 767,957 Hz: in lowest terms the filter would have 15 million weights.
    assert MAX_TERM < 767_957
    found = of_blocks(np.ones(100_000, np.float32), 767_957, 8000, 100_000)
    assert len(found) == pytest.approx(100_000 * 8000 / 767_957, abs=1)
    np.testing.assert_allclose(found[20:-20], 1, atol=2e-3)
