"""What the guide says of the league, counted again from the committed tables."""

import pytest

from edge_server.simulation.experiments.league_scores import ABOVE, BELOW
from tests.league_verdict import RESULTS, TABLES, settings, verdicts

FULL_MODEL = "fedavg"
"""The bound: the full model on every device."""


def test_every_committed_table_of_the_league_is_counted() -> None:
    assert {path.parent.name for path in RESULTS.glob("league*/results.json.xz")} == set(TABLES)


@pytest.mark.parametrize("measure", ["whole model", "mean tier"])
def test_the_default_is_below_no_recipe_with_tiers(measure: str) -> None:
    found = settings()
    assert len(found) >= 12
    counted = {rival: counts for rival, name, counts, _ in verdicts("attending", found) if name == measure}
    assert all(not counts[BELOW] for rival, counts in counted.items() if rival != FULL_MODEL)


@pytest.mark.parametrize("measure", ["whole model", "mean tier"])
def test_the_default_is_above_each_recipe_in_three_quarters_of_the_settings(measure: str) -> None:
    found = settings()
    for rival, name, counts, differences in verdicts("attending", found):
        if rival != FULL_MODEL and name == measure and len(differences) == len(found):
            assert counts[ABOVE] >= 0.75 * len(found), rival


def test_tier_1_of_the_default_is_within_three_points_of_its_whole_model() -> None:
    for setting, rows in settings().items():
        scores = rows["attending"].values()
        gaps = [score.whole - score.tiers[0] for score in scores if score.whole is not None]
        assert sum(gaps) / len(gaps) <= 0.03, setting
