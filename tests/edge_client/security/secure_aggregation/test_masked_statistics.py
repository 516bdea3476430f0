"""Statistics become numbers within +-1, whose weighted mean is the statistics of all examples."""

from dataclasses import replace

import numpy as np
import pytest

from edge_client.data.dataset import LabelledData, make_labelled_data
from edge_client.data.statistics import statistics_of
from edge_client.security.secure_aggregation.masked_figures import as_means, as_sums, map_of
from edge_server.strategy.data_statistics import rough_request
from schemas.statistics import COUNT, DEVICES, FEATURES, HISTOGRAM, LABELS, MAX, MIN, TARGETS, Ranges
from schemas.statistics import StatisticsRequest as Request

CLASSES = 3


def rows(count: int, seed: int, *, numbers: bool = False) -> LabelledData:
    rng = np.random.default_rng(seed)
    images = (rng.normal(size=(count, 2, 4)) * [[3], [50]] + [[1], [1000]]).astype(np.float32)
    labels = rng.normal(20, 5, (count, 1)).astype(np.float32) if numbers else rng.integers(0, CLASSES, count)
    return replace(make_labelled_data(images, labels), task="regression" if numbers else "classification")


def summed(parts: list[LabelledData], request: Request) -> dict[str, dict[str, np.ndarray]]:
    """What a masked sum of the parts' answers is, without the masks."""
    means = [as_means(statistics_of(part, request, outputs=CLASSES), request, len(part)) for part in parts]
    counts, values = [len(part) for part in parts], int(np.prod(parts[0].images.shape[2:]))
    mean = {name: np.average([found[name] for found in means], axis=0, weights=counts) for name in means[0]}
    return as_sums(mean, request, sum(counts), values=values, devices=len(parts))


@pytest.mark.parametrize("numbers", [False, True], ids=["classes", "numbers"])
def test_a_cohort_answers_as_one_device_with_all_examples(numbers: bool) -> None:
    parts = [rows(count, seed, numbers=numbers) for seed, count in enumerate((20, 50, 7))]
    images, labels = (np.concatenate([getattr(p, n) for p in parts]) for n in ("images", "labels"))
    whole = replace(parts[0], images=images, labels=labels)
    request = rough_request(((0.0, 5.0), (900.0, 100.0)), ((21.0, 4.0),) if numbers else ())
    found, expected = summed(parts, request), statistics_of(whole, request, outputs=CLASSES)
    assert found.pop(DEVICES)[COUNT].tolist() == [3]
    assert found.keys() == expected.keys()
    for kind, arrays in expected.items():
        for name in arrays.keys() - {MIN, MAX}:
            np.testing.assert_allclose(found[kind][name], arrays[name], rtol=1e-9, atol=1e-6)
    for kind in found.keys() - {LABELS}:
        # Least and most are the edges of the bins that have them.
        bin_width = 16 * np.array([4.0] if kind == TARGETS else [5.0, 100.0]) / request.bins
        for name, sign in ((MIN, 1), (MAX, -1)):
            apart = sign * (expected[kind][name] - found[kind][name])
            assert (apart >= -1e-6).all()
            assert (apart <= bin_width + 1e-6).all()


def test_values_beyond_the_range_are_counted_beside_it() -> None:
    data = make_labelled_data(np.array([[-5.0], [0.5], [9.0], [0.5]], np.float32), np.zeros(4, np.int64))
    request = Request(bins=2, features=Ranges(centre=(0.0,), low=(-1.0,), high=(1.0,)))
    features = summed([data], request)[FEATURES]
    assert features[HISTOGRAM].tolist() == [[1, 0, 2, 1]]
    assert (features[MIN].item(), features[MAX].item()) == (-1, 1)


def test_the_numbers_of_an_answer_have_no_channels() -> None:
    layout = map_of({"features.sum": (2,), "features.histogram": (2, 18)})
    assert layout.groups == {}
    assert layout.parameters["features.histogram"].shape == (2, 18)
