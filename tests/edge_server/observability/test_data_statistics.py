"""Quantiles that are read from histograms, and the tables that show them."""

import numpy as np
import pytest

from edge_client.data.dataset import make_labelled_data
from edge_server.observability.data_statistics import as_json, as_texts, statistics_rows
from edge_server.storage.records import DataStatistics, Distribution
from schemas.statistics import FEATURES, HISTOGRAM
from tests.edge_client.data.test_statistics import asked


@pytest.mark.parametrize(
    "values",
    [
        np.random.default_rng(0).standard_cauchy((500, 2)),
        np.random.default_rng(1).integers(0, 3, (500, 2)),
        np.full((10, 2), 7.0),
    ],
    ids=["heavy tails", "few values", "one value"],
)
def test_quantiles_are_within_half_a_bin(values: np.ndarray) -> None:
    data = make_labelled_data(values.astype(np.float32), np.zeros(len(values), np.int64))
    figures = asked([data.subset(range(0, len(data), 2)), data.subset(range(1, len(data), 2))])[FEATURES]
    found = Distribution(**{name: array.tolist() for name, array in figures.items()})
    rows = statistics_rows(DataStatistics(devices=2, examples=len(data), features=found))
    for place, row in enumerate(rows):
        column = data.images[:, place].astype(np.float64)
        for share, quantile in row.quantiles.items():
            exact = np.quantile(column, share, method="inverted_cdf")
            assert abs(quantile - exact) <= row.quantile_error * (1 + 1e-9) + 1e-12
        # 1024 bins of at most 16 standard deviations: outside them are 1 in 64 at most.
        assert row.quantile_error <= 8 / 1024 * row.std * (1 + 1e-9)
    assert HISTOGRAM in figures


def test_a_first_round_has_no_quantiles() -> None:
    one = (1.0,)
    found = Distribution(count=one, mean=one, variance=one, least=one, most=one)
    asked_once = DataStatistics(devices=1, examples=1, features=found)
    (row,) = statistics_rows(asked_once)
    assert row.quantiles == {}
    texts = as_texts(asked_once)
    assert texts.features == [["1", "1", "1", "1", "-", "-", "-", "1"]]
    assert texts.about == "1 example of 1 device, in the units of their data"
    assert as_json(asked_once)["targets"] == []


def test_large_figures_are_no_powers_of_ten() -> None:
    count, mean, variance, least, most = [(figure,) for figure in (1, 1548.4, 1e8, 0.00356612, 12345.6)]
    found = Distribution(count=count, mean=mean, variance=variance, least=least, most=most)
    (cells,) = as_texts(DataStatistics(devices=1, examples=1, features=found)).features
    assert cells == ["1", "1,548", "10,000", "0.00357", "-", "-", "-", "12,346"]
