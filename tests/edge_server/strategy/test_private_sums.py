"""Heads from noisy sums: how far an example moves the sums, what a round spends, what is refused."""

from pathlib import Path

import numpy as np
import pytest

from edge_client.training.feature_sums import GRAM, SQUARES, TARGETS, FeatureSums, sensitivity, unpack
from edge_server.config.load import load_config
from edge_server.strategy.groups import least_squares
from edge_server.strategy.groups.device_sums import check_clipped
from edge_server.strategy.groups.least_squares import Sums
from edge_server.strategy.privacy.accounting import SumNoise
from schemas.errors import ConfigError, PeerError
from tests.edge_server.simulation.small import history, run

NOISY = ("privacy.mechanism=gaussian", "privacy.noise-multiplier=1", "privacy.delta=1e-3")
NOISE = SumNoise(b"s" * 32, 1, 1.0)
D, CLASSES = 4, 3


def summed(features: np.ndarray, *, gram: bool, clip: float = 2.0) -> dict[str, np.ndarray]:
    sums = FeatureSums(CLASSES, gram=gram, clip=clip)
    sums.add(features.astype(np.float32), np.zeros(len(features), np.int64), np.zeros(len(features), np.intp))
    return sums.arrays()


def test_an_example_moves_the_sums_by_what_is_stated_at_most() -> None:
    others, along = np.ones((3, D)), np.eye(1, D) * 7.0
    # Along an axis a = (1, 0, 0, 0, 1): three ones in the triangle of a a^T, and two in a y^T.
    assert sensitivity(D + 1, gram=True) == pytest.approx(5**0.5)
    # The mean square of four features of length 1 is 1/4.
    assert sensitivity(D + 1, gram=False) == pytest.approx((2 + 1 / 16) ** 0.5)
    for gram, names in ((True, (GRAM, TARGETS)), (False, (TARGETS, SQUARES))):
        for further, exact in ((along, True), (np.random.default_rng(0).normal(0, 9, (1, D)), False)):
            whole, without = (summed(rows, gram=gram) for rows in (np.concatenate([others, further]), others))
            moved = np.sqrt(sum(np.square(whole[name] - without[name]).sum() for name in names))
            limit = sensitivity(D + 1, gram=gram)
            assert moved == pytest.approx(limit) if exact else moved <= limit + 1e-9


def test_short_features_are_in_units_of_the_clip_and_long_ones_cut() -> None:
    kept = summed(np.array([[1.0, 0, 0, 0], [0, 6.0, 8.0, 0]]), gram=False)[TARGETS][0, :, 0]
    assert kept == pytest.approx([0.5, 0.6, 0.8, 0, 2])


def test_noise_keeps_a_packed_matrix_symmetric_and_is_the_same_for_the_same_sums() -> None:
    packed = {GRAM: np.zeros(2000 * 2001 // 2)}
    noisy = NOISE.add_to(packed, 3.0)[GRAM]
    matrix = unpack(noisy, 2000)
    assert np.array_equal(matrix, matrix.T)
    assert noisy.std() == pytest.approx(3.0, rel=0.01)
    # Its eigenvalues end where the penalty expects them (Wigner 1958).
    assert np.abs(np.linalg.eigvalsh(matrix[:400, :400])).max() == pytest.approx(2 * 3.0 * 20, rel=0.1)
    assert np.array_equal(noisy, NOISE.add_to(packed, 3.0)[GRAM])
    assert not np.array_equal(noisy, NOISE.add_to({GRAM: packed[GRAM] + 1}, 3.0)[GRAM] - 1)


def test_the_penalty_grows_with_the_noise_and_is_that_of_ridge_without() -> None:
    features = np.random.default_rng(0).normal(size=(50, D))
    whole = np.concatenate([features, np.ones((50, 1))], 1)
    targets = np.eye(CLASSES)[np.arange(50) % CLASSES]
    sums = Sums(whole.T @ whole, whole.T @ targets, 50.0)
    plain = least_squares.ridge(sums, 0.1)
    assert np.allclose(least_squares.noisy_ridge(sums, 0.1, 0.0).weight, plain.weight)
    lengths = [np.linalg.norm(least_squares.noisy_ridge(sums, 0.1, noise).weight) for noise in (0, 1, 10)]
    assert lengths == sorted(lengths, reverse=True)


def test_sums_of_features_beyond_the_clip_are_refused() -> None:
    arrays = summed(np.ones((5, D)) * 9, gram=True)
    own = Sums(unpack(arrays[GRAM][0], D + 1), arrays[TARGETS][0], 5.0)
    check_clipped(own)
    with pytest.raises(PeerError, match="longer than the clip"):
        check_clipped(Sums(own.gram * 1.1 - 0.1 * np.eye(D + 1)[-1:].T * own.gram[-1:], own.targets, 5.0))


@pytest.mark.parametrize(("recipe", "least"), [("ridge", 0.7), ("class-means", 0.78)])
def test_a_run_spends_one_release_and_finds_a_head(tmp_path: Path, recipe: str, least: float) -> None:
    words = ("num-clients=4", "samples-per-client=300", "test-samples=400")
    summary = run(tmp_path / "run", recipe, *words, *NOISY)
    (line,) = history(tmp_path / "run")
    # The Gaussian mechanism of multiplier 1 (Balle and Wang 2018, theorem 8).
    assert line["epsilon"] == pytest.approx(3.1387, abs=1e-3)
    assert (summary.epsilon, summary.delta) == (line["epsilon"], 1e-3)
    assert summary.test_accuracy is not None
    assert summary.test_accuracy > least
    assert "costs" not in line


def test_nothing_but_the_noisy_sums_is_kept(tmp_path: Path) -> None:
    from edge_server.storage.run_folder import RunFolder
    from edge_server.strategy.closing import load_state

    run(tmp_path / "run", "ridge", "num-clients=2", "samples-per-client=40", *NOISY)
    folder = RunFolder(tmp_path / "run")
    state = load_state(folder.checkpoint(1), folder.model(1))
    assert not state.groups["feature-sums"]
    assert state.privacy is not None
    assert [tuple(release) for release in state.privacy["releases"]] == [(1.0, 1, 1, 1)]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("privacy.clip=adaptive",), "state the usual length of the head's inputs"),
        (("tiers.ratios=[0.5, 0.0]",), "each tier's head would read the same examples once more"),
        (("privacy.secure-aggregation=true",), "noise is added to sums that the server can read"),
        (("privacy.amplification=true",), "devices are drawn, and sums are of examples"),
        (
            ('training.mirror=["left-right", "up-down"]',),
            "counts 4 times in the sums, and noise covers it once",
        ),
    ],
)
def test_what_would_read_the_examples_once_more_is_refused(words: tuple[str, ...], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        load_config("ridge", [*NOISY, *words])


def test_sums_before_a_training_are_refused() -> None:
    with pytest.raises(ConfigError, match="which gets no noise"):
        load_config("dp-fedavg", ["strategy.first-round=ridge"])
