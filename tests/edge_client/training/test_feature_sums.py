"""Sums of features: packed triangles, projections, parts by digest, batches of one size."""

import numpy as np
import pytest

from edge_client.training import feature_sums
from edge_client.training.feature_sums import BATCH, GRAM, MAX_FEATURES, SQUARES, TARGETS

RANDOM = np.random.default_rng(5)


def test_a_symmetric_matrix_is_packed_as_its_triangle_and_unpacked_to_the_same_bits() -> None:
    half = RANDOM.normal(size=(5, 5))
    packed = feature_sums.pack(half + half.T)
    assert len(packed) == feature_sums.packed_size(5) == 15
    assert np.array_equal(feature_sums.unpack(packed, 5), half + half.T)


def test_sums_of_two_examples_match_the_calculation() -> None:
    # Features (1, 2) and (3, 0) of the classes 1 and 0, each with a 1 behind them.
    sums = feature_sums.FeatureSums(2)
    sums.add(np.array([[1, 2], [3, 0]], np.float32), np.array([1, 0]), np.array([0, 1]))
    arrays = sums.arrays()
    assert feature_sums.unpack(arrays[GRAM][0], 3).tolist() == [[1, 2, 1], [2, 4, 2], [1, 2, 1]]
    assert feature_sums.unpack(arrays[GRAM][1], 3).tolist() == [[9, 0, 3], [0, 0, 0], [3, 0, 1]]
    assert arrays[TARGETS].tolist() == [[[0, 1], [0, 2], [0, 1]], [[3, 0], [0, 0], [1, 0]]]
    assert arrays[SQUARES].tolist() == [1, 1]


def test_sums_for_class_means_have_squares_of_features_instead_of_products() -> None:
    sums = feature_sums.FeatureSums(2, gram=False)
    sums.add(np.array([[1, 2], [3, 0]], np.float32), np.array([1, 0]), np.array([0, 0]))
    arrays = sums.arrays()
    assert set(arrays) == {TARGETS, SQUARES}
    assert arrays[TARGETS][0].tolist() == [[3, 1], [0, 2], [1, 1]]
    assert arrays[SQUARES].tolist() == [7, 0]


def test_no_examples_have_no_sums() -> None:
    assert feature_sums.FeatureSums(3).arrays() == {}


def test_an_example_is_in_the_same_part_wherever_it_lies() -> None:
    inputs = RANDOM.normal(size=(400, 3, 2)).astype(np.float32)
    parts, order = feature_sums.parts_of(inputs), RANDOM.permutation(400)
    assert np.array_equal(feature_sums.parts_of(inputs[order]), parts[order])
    assert 50 < parts.sum() < 110


def test_many_features_are_projected_by_signs_that_keep_their_products() -> None:
    features = RANDOM.normal(size=(20, 5000)).astype(np.float32)
    first = feature_sums.project(features)
    assert first.shape == (20, MAX_FEATURES)
    assert np.array_equal(first, feature_sums.project(features))
    # A product of two such vectors has a standard deviation of |a| |b| / sqrt(2048), 110 here.
    assert np.abs(first @ first.T - features @ features.T).max() < 5 * 5000 / np.sqrt(MAX_FEATURES)
    assert feature_sums.project(features[:, :9]) is not first
    assert np.array_equal(feature_sums.project(features[:, :9]), features[:, :9])


@pytest.mark.parametrize("count", [1, BATCH, BATCH + 3])
def test_features_come_from_batches_of_one_size(count: int) -> None:
    sizes = []

    def features_of(batch: np.ndarray) -> np.ndarray:
        sizes.append(len(batch))
        return batch

    inputs = RANDOM.normal(size=(count, 4)).astype(np.float32)
    parts = [inputs[start : start + BATCH] for start in range(0, count, BATCH)]
    batches = ((part, np.zeros(len(part), np.int64)) for part in parts)
    arrays = feature_sums.sum_features(features_of, batches, 2, gram=True, originals=count)
    assert set(sizes) == {BATCH}
    assert arrays[TARGETS].sum(0)[-1].tolist() == [count, 0]
    assert arrays[TARGETS].sum(0)[:-1, 0] == pytest.approx(inputs.astype(np.float64).sum(0), abs=1e-12)


def test_mirror_images_are_in_the_parts_of_their_originals() -> None:
    count = 2 * BATCH + 5
    originals = RANDOM.normal(size=(count, 4)).astype(np.float32)
    inputs = np.concatenate([originals, originals[:, ::-1]])
    places = [slice(at, at + BATCH) for at in range(0, 2 * count, BATCH)]
    batches = [(inputs[place], np.zeros(len(inputs[place]), np.int64)) for place in places]
    arrays = feature_sums.sum_features(lambda batch: batch, batches, 1, gram=True, originals=count)
    own = feature_sums.parts_of(originals)
    assert arrays[TARGETS][:, -1, 0].tolist() == [2 * (own == 0).sum(), 2 * (own == 1).sum()]
    for part in range(2):
        sums = originals[own == part].astype(np.float64).sum(0)
        assert arrays[TARGETS][part, :-1, 0] == pytest.approx(sums + sums[::-1], abs=1e-9)
