"""Sums of a device's examples, by hand and against numpy over all devices' data."""

from dataclasses import replace

import numpy as np
import pytest

from edge_client.data.dataset import LabelledData, make_labelled_data
from edge_client.data.statistics import not_finite, statistics_of, sums_of
from edge_client.data.tasks.registry import TASKS
from edge_server.strategy.aggregation.updates import ClientUpdate
from edge_server.strategy.data_statistics import next_request, pool_statistics
from schemas.statistics import FEATURES, LABELS, TARGETS, Ranges, StatisticsRequest
from schemas.submodel import SubModelSpec
from tests.edge_client.data.tasks.examples import examples

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def test_sums_and_bins_by_hand() -> None:
    # Two features of two examples with two moments each: 1 2 3 6 and 5 5 5 5.
    values = np.array([[[1, 2], [5, 5]], [[3, 6], [5, 5]]], np.float32)
    found = sums_of(values, Ranges(centre=(2, 5), low=(2, 5), high=(4, 5)), 2)
    assert found["count"].tolist() == [4, 4]
    assert found["sum"].tolist() == [-1 + 0 + 1 + 4, 0]
    assert found["squares"].tolist() == [1 + 0 + 1 + 16, 0]
    assert found["least"].tolist() == [1, 5]
    assert found["most"].tolist() == [6, 5]
    # Below 2; from 2 to 3; from 3 to 4; above 4. A constant has one bin.
    assert found["histogram"].tolist() == [[1, 1, 1, 1], [0, 4, 0, 0]]


def answers(parts: list[LabelledData], request: StatisticsRequest) -> list[ClientUpdate]:
    found = [statistics_of(part, request, outputs=part.num_classes) for part in parts]
    return [
        ClientUpdate(f"device-{n}", SubModelSpec(), groups, len(part))
        for n, (groups, part) in enumerate(zip(found, parts, strict=True))
    ]


def asked(parts: list[LabelledData], *, order: int = 1) -> dict:
    """The figures after two rounds."""
    known = None
    for _ in range(2):
        request = next_request(known, StatisticsRequest())
        updates = answers(parts, request)[::order]
        known = pool_statistics(updates, request, {update.client: 1.0 for update in updates})
    assert known is not None
    return known


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("shape", [(3,), (3, 20), (3, 5, 4)])
def test_devices_together_find_what_numpy_finds_in_all_data(shape: tuple[int, ...], offset: float) -> None:
    rng = np.random.default_rng(0)
    images = (rng.gumbel(size=(300, *shape)) + offset).astype(np.float32)
    data = make_labelled_data(images, rng.integers(0, 3, 300), class_names=("a", "b", "c"))
    parts = [data.subset(range(*cut)) for cut in ((0, 7), (7, 120), (120, 300))]
    found = asked(parts)[FEATURES]
    values = np.moveaxis(images.astype(np.float64), 1, 0).reshape(3, -1)
    np.testing.assert_allclose(found["mean"], values.mean(1), rtol=1e-9)
    np.testing.assert_allclose(found["variance"], values.var(1), rtol=1e-9)
    assert found["count"].tolist() == [values.shape[1]] * 3
    assert (found["least"] == values.min(1)).all()
    assert (found["most"] == values.max(1)).all()
    assert (found["histogram"].sum(1) == found["count"]).all()


def test_the_order_of_devices_changes_nothing() -> None:
    data = examples("regression", 60)
    parts = [data.subset(range(*cut)) for cut in ((0, 7), (7, 20), (20, 60))]
    for group in (FEATURES, TARGETS):
        one, other = (asked(parts, order=order)[group] for order in (1, -1))
        assert all((one[name] == other[name]).all() for name in one)


def test_a_value_that_is_no_number_is_found() -> None:
    data = examples("regression")
    assert not_finite(data) == ""
    data.labels[3, 1] = np.nan
    assert not_finite(data) == "target 2"
    data.images[7, 2] = np.inf
    assert not_finite(data) == "feature 3"


def test_labels_are_counted_by_the_classes_of_the_federation() -> None:
    data = replace(examples("classification"), class_names=("a", "b", "c", "d"))
    one_class = data.subset(np.flatnonzero(data.labels == 1))
    found = statistics_of(one_class, StatisticsRequest(), outputs=5)
    assert found[LABELS]["count"].tolist() == [0, len(one_class), 0, 0, 0]
    flags = examples("multi-label")
    found = statistics_of(flags, StatisticsRequest(), outputs=2)
    assert found[LABELS]["count"].tolist() == flags.labels.sum(0).tolist()


@pytest.mark.parametrize("task", list(TASKS))
def test_every_task_has_features_and_what_it_learns(task: str) -> None:
    found = statistics_of(examples(task), StatisticsRequest(), outputs=3)
    further = {"numbers": {TARGETS}, "none": set()}.get(TASKS[task].labels, {LABELS})
    assert found.keys() == {FEATURES} | further


def test_an_exaggerated_device_counts_for_what_is_believed() -> None:
    data = examples("classification", 40)
    parts = [data.subset(range(20)), data.subset(range(20, 40))]
    updates = answers(parts, StatisticsRequest())
    halved = pool_statistics(updates, StatisticsRequest(), {"device-0": 0.5, "device-1": 1.0})
    first, second = (part.images.astype(np.float64).mean(0) for part in parts)
    np.testing.assert_allclose(halved[FEATURES]["mean"], (10 * first + 20 * second) / 30)


def test_many_features_have_coarser_histograms() -> None:
    def bins(features: int) -> int:
        data = make_labelled_data(np.ones((6, features), np.float32), np.zeros(6, np.int64))
        return next_request(
            pool_statistics(answers([data], StatisticsRequest()), StatisticsRequest(), {"device-0": 1}),
            StatisticsRequest(),
        ).bins

    assert (bins(64), bins(65)) == (1024, 256)
