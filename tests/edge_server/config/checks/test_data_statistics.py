"""Statistics of devices' data with the two kinds of privacy, and without."""

from typing import Any

import pytest

from tests.edge_server.config.checks.test_combinations import found

MASKED = {"privacy": {"secure-aggregation": True}}
ROUGH = {"statistics": {"mean": [20.0], "std": [10.0]}}
ASKED = {"federation": {"statistics": True}}
SCALED = {"data": {"scaling": "federated"}}


@pytest.mark.parametrize("sections", [ASKED, SCALED])
def test_statistics_get_no_noise(sections: dict[str, Any]) -> None:
    (line,) = found("dp-fedavg", **sections)
    assert "its budget would not count them" in line


@pytest.mark.parametrize("sections", [ASKED, SCALED])
def test_masks_need_rough_figures(sections: dict[str, Any]) -> None:
    (line,) = found("heterofl", **sections, **MASKED)
    assert "state a rough mean and std" in line
    assert found("heterofl", **MASKED, **{**sections, "data": {**sections.get("data", {}), **ROUGH}}) == []


def test_masks_need_rough_figures_of_what_is_learned() -> None:
    sections = {**ASKED, **MASKED, "model": {"name": "mlp", "task": "regression"}}
    (line,) = found("fedavg", **sections, data=ROUGH)
    assert "target-mean" in line
    stated = {"statistics": {**ROUGH["statistics"], "target-mean": [5.0], "target-std": [2.0]}}
    assert found("fedavg", **sections, data=stated) == []
