"""Experiments other than tables of runs: sizes, similarity, Grad-CAM."""

import numpy as np
import pytest
import torch
from torch import nn

from edge_server.config.load import load_config
from edge_server.observability.grad_cam import concentration, grad_cam
from edge_server.simulation.experiments.cells import RunSelection
from edge_server.simulation.experiments.compare import checked_plan, named_experiment, run_comparison
from edge_server.simulation.experiments.similarity import attend, matching_rate
from edge_server.simulation.experiments.sizes import find_sizes, mean_parameters
from tests.edge_server.simulation.experiments.made_up import Quiet


def test_table_4_agrees_with_the_paper_on_every_level():
    findings = find_sizes(checked_plan(named_experiment(["attending-table-4"]), RunSelection("small")))
    assert len(findings.records) == 10
    for record in findings.records:
        assert round(record["parameters"] / 1e6, 2) == record["paper_parameters_m"]
    # The last line is the mean of the five levels.
    assert findings.tables[0].rows[-1][1] == "1,124,879"


def test_mean_parameters_over_tiers():
    # (498,365 + 834,922 + 1,145,590 + 1,482,147 + 1,663,370) / 5
    config = load_config("attending", ["model.input-shape=[1, 28, 28]", "model.num-classes=10"])
    assert mean_parameters(config) == pytest.approx(1_124_878.8)


def test_matching_rate_by_hand():
    labels = (frozenset({0, 1}), frozenset({1, 2}), frozenset({3, 4}), frozenset({2, 4}))
    # A label in common: 0-1, 1-3, 2-3. Client 0 attends most to 2 (wrong), 1 to 0 and 3 (both right),
    # 2 to 3 (right), 3 to 0 and 1 (one right): 4 of 6.
    alpha = np.array([[0.5, 0.1, 0.3, 0.1], [0.3, 0.4, 0.1, 0.2], [0.1, 0.1, 0.5, 0.3], [0.3, 0.2, 0.1, 0.4]])
    assert matching_rate(alpha, labels) == pytest.approx(4 / 6)
    assert matching_rate(np.eye(2), (frozenset({0}), frozenset({1}))) is None


def test_paired_clients_attend_to_each_other():
    words = ["data.source=digits", "model.name=mlp", "num-clients=4", "data.partition=paired", "rounds=2"]
    population = attend(load_config("igfl-s-self", [*words, "learning-rate=0.1"]))
    assert population.labels[0] == population.labels[1] == frozenset({0, 1, 2, 3, 4})
    np.testing.assert_allclose(population.alpha.sum(axis=1), 1)
    assert population.matching_rate == 1


def test_populations_are_kept(tmp_path):
    words = ("data.source=digits", "model.name=mlp", "num-clients=4", "rounds=1", "samples-per-client=20")
    plan = checked_plan(named_experiment(["igfl-figure-2"]), RunSelection("small", (1,), (), words))
    first = run_comparison(plan, tmp_path, simulate=None, progress=Quiet())
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").iterdir()}
    again = run_comparison(plan, tmp_path, simulate=None, progress=Quiet())
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").iterdir()} == kept
    assert again.details == first.details
    assert (tmp_path / "heat-map.png").read_bytes().startswith(b"\x89PNG")


class OneChannel(nn.Module):
    """Class 0 scores the sum of the picture, class 1 its negative."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 1, bias=False)
        nn.init.ones_(self.conv.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = self.conv(x).sum(dim=(1, 2, 3))
        return torch.stack([total, -total], dim=1)


def test_grad_cam_by_hand():
    # The map is the picture and its gradient is 1: class 0's heat is the picture over its highest value;
    # class 1's gradient is -1, so its heat is zero.
    picture = torch.tensor([[[[0.0, 1.0], [2.0, 4.0]]]])
    heat = grad_cam(OneChannel(), picture.repeat(2, 1, 1, 1), torch.tensor([0, 1]))
    np.testing.assert_allclose(heat[0], [[0.0, 0.25], [0.5, 1.0]])
    np.testing.assert_allclose(heat[1], 0.0)


def test_concentration_by_hand():
    # The hottest quarter of four positions is one: 4 of 8, and 1 of 4; the all-zero picture does not count.
    heat = np.array([[[4, 2], [1, 1]], [[1, 1], [1, 1]], [[0, 0], [0, 0]]], dtype=np.float32)
    assert concentration(heat) == pytest.approx((0.5 + 0.25) / 2)
