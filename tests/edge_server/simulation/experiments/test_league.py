"""The league's intervals, tables and verdicts, with numbers computed by hand."""

from dataclasses import replace
from pathlib import Path

import pytest

from edge_client.data.tasks.registry import TASKS
from edge_server.simulation.experiments.cells import RunSelection
from edge_server.simulation.experiments.compare import checked_plan, named_experiment, run_comparison
from edge_server.simulation.experiments.league import column_table, matrix, verdicts
from edge_server.simulation.experiments.league_scores import (
    ABOVE,
    BELOW,
    LEVEL,
    MEASURES,
    Difference,
    Score,
    difference,
    interval,
)
from schemas.errors import ConfigError
from tests.edge_server.simulation.experiments.made_up import Quiet, Simulated

MAE = TASKS["regression"].metrics[0]


def score(whole: float | None, *tiers: float) -> Score:
    return Score(whole, tiers, uplink_bytes=1000, downlink_bytes=2000)


SCORES = {
    ("ours", "a"): {1: score(0.80, 0.7, 0.8), 2: score(0.82, 0.7, 0.8)},
    ("theirs", "a"): {1: score(0.78, 0.6, 0.8), 2: score(0.79, 0.7, 0.8)},
    ("small", "a"): {1: score(None, 0.75), 2: score(None, 0.75)},
    ("ours", "b"): {1: score(0.60, 0.6, 0.6), 2: score(0.60, 0.6, 0.6)},
    ("theirs", "b"): {1: score(0.65, 0.6, 0.6), 2: score(0.65, 0.6, 0.6)},
}


def test_the_interval_of_equal_differences_is_their_value() -> None:
    assert interval([2.0, 2.0, 2.0]) == (2.0, 2.0)


def test_the_interval_is_computed_over_all_resamples_of_a_few_seeds() -> None:
    # The means of the 4 resamples of (0, 4) are 0, 2, 2 and 4.
    assert interval([0.0, 4.0]) == (0.0, 4.0)
    # Of the 27 resamples of (0, 3, 6) one is 0, three are 1: the quantile lies in the first.
    assert interval([0.0, 3.0, 6.0]) == (0.0, 6.0)


def test_one_seed_has_no_interval_and_no_verdict() -> None:
    found = difference({1: score(0.9)}, {1: score(0.5)}, MEASURES["whole model"])
    assert found is not None
    assert found.verdict == LEVEL
    assert str(found) == "+40.0 (one seed)"


def test_the_interval_of_many_seeds_is_the_same_in_every_call_and_close_to_the_normal_one() -> None:
    values = [float(number % 5) for number in range(100)]
    # Standard error: sqrt(2) / 10; 1.96 of it are 0.277.
    assert interval(values) == interval(values) == pytest.approx((2 - 0.277, 2 + 0.277), abs=0.03)


@pytest.mark.parametrize(
    ("low", "high", "verdict"), [(0.1, 2, ABOVE), (-1, 1, LEVEL), (-2, -0.1, BELOW), (0.0, 1, LEVEL)]
)
def test_a_verdict_needs_an_interval_without_zero(low: float, high: float, verdict: str) -> None:
    assert Difference((low + high) / 2, low, high).verdict == verdict


def test_differences_are_paired_by_seed_in_points() -> None:
    found = difference(SCORES["ours", "a"], SCORES["theirs", "a"], MEASURES["whole model"])
    assert found is not None
    assert found.mean == pytest.approx(2.5)
    assert (found.low, found.high) == pytest.approx((2.0, 3.0))
    only_first = difference({1: score(0.5)}, {2: score(0.5)}, MEASURES["whole model"])
    assert only_first is None


def test_a_row_with_a_lower_error_is_above() -> None:
    ours, theirs = (
        {seed: replace(score(error + seed / 100, 1.0, error), metric=MAE) for seed in (1, 2)}
        for error in (0.25, 0.375)
    )
    found = difference(ours, theirs, MEASURES["whole model"])
    assert found is not None
    assert (str(found), found.verdict) == ("+0.125 [+0.125, +0.125]", ABOVE)
    assert ours[1].worst_tier == 1.0
    table = column_table({("ours", "a"): ours, ("theirs", "a"): theirs}, "a", "theirs", {})
    assert table.columns[1:3] == ("whole model (mae)", "mean tier (mae)")
    assert table.rows[0][1] == "0.265 ± 0.0071"


def test_a_row_without_the_full_model_has_no_accuracy_of_the_whole_model() -> None:
    table = column_table(SCORES, "a", "ours", {})
    rows = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert rows["ours"]["whole model (%)"] == "81.00 ± 1.41"
    assert rows["ours"]["whole model over ours"] == ""
    assert rows["theirs"]["tier 1 (%)"] == "65.00 ± 7.07"
    assert rows["theirs"]["whole model over ours"] == "-2.5 [-3.0, -2.0]"
    assert rows["small"]["whole model (%)"] == ""
    assert rows["small"]["mean tier over ours"] == "+0.0 [+0.0, +0.0]"


def test_the_matrix_counts_settings_above_level_and_below() -> None:
    table = matrix(SCORES, ["a", "b"], "whole model")
    rows = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert rows["ours"]["theirs"] == "1 / 0 / 1"
    assert rows["theirs"]["ours"] == "1 / 0 / 1"
    assert rows["ours"]["small"] == ""


def test_rounds_to_a_target_count_the_seeds_that_reached_it() -> None:
    reached = [{0.7: 10, 0.8: None}, {0.7: 13, 0.8: 20}]
    own = {
        seed: replace(score(0.8, 0.8), reached=rounds, diverged=seed) for seed, rounds in enumerate(reached)
    }
    table = column_table({("ours", "a"): own}, "a", "ours", {})
    (row,) = (dict(zip(table.columns, line, strict=True)) for line in table.rows)
    assert row["rounds to 70 %"] == "12"
    assert row["rounds to 80 %"] == "20 (1 of 2)"
    assert row["remarks"] == "1 rounds diverged"


def test_a_row_whose_runs_all_failed_says_why() -> None:
    failures = {("broken", "a"): ["out of memory"], ("broken", "b"): ["another column"]}
    table = column_table(SCORES, "a", "ours", {}, failures)
    rows = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert rows["broken"]["remarks"] == "out of memory"
    assert rows["broken"]["whole model (%)"] == ""
    assert rows["ours"]["remarks"] == ""


def test_verdicts_say_what_the_intervals_carry() -> None:
    assert verdicts(SCORES, ["a", "b"], "ours") == [
        "ours against theirs: whole model: above in 1, below in 1 of 2 settings; "
        "mean tier: level with in 2 of 2 settings.",
        "ours against small: mean tier: level with in 1 of 1 settings.",
    ]


# --- a whole league ---
SETTINGS = """[settings.data]
source = "digits"
[settings.model]
name = "mlp"
input-shape = [1, 8, 8]
num-classes = 10
[settings.clients]
num-clients = 2
[settings.federation]"""
LEAGUE = f"""
title = "two rows"
kind = "league"
reference = "ours"
seeds = [1, 2, 3]
average-rounds = 2
figures = ["auroc"]
{SETTINGS}
rounds = 3
[[rows]]
label = "ours"
recipe = "fedavg"
settings.training.learning-rate = 0.2
[[rows]]
label = "theirs"
recipe = "fedavg"
settings.training.learning-rate = 0.01
"""


def test_a_league_runs_its_cells_and_says_who_is_above(tmp_path: Path) -> None:
    (tmp_path / "league.toml").write_text(LEAGUE)
    plan = checked_plan(named_experiment([str(tmp_path / "league.toml")]), RunSelection())
    assert all(cell.config().federation.evaluate_tiers_every == 1 for cell in plan.cells)
    simulated = Simulated(accuracy=lambda config, number: config.training.learning_rate + number / 100)
    findings = run_comparison(plan, tmp_path / "out", simulate=simulated, progress=Quiet())
    assert len(simulated.calls) == 6
    # The mean of the last two of three rounds: 0.2 + 0.025, and 0.01 + 0.025; the other figure is half.
    rows = {row[0]: row for row in findings.tables[0].rows}
    assert rows["ours"][1] == "22.50 ± 0.00"
    assert findings.tables[0].columns[2] == "whole model (auroc, %)"
    assert [rows[name][2] for name in ("ours", "theirs")] == ["11.25 ± 0.00", "1.75 ± 0.00"]
    assert rows["theirs"][-1] == "-19.0 [-19.0, -19.0]"
    assert len(findings.details["scores"]) == 6
    assert findings.notes[-1] == "ours against theirs: whole model: above in 1 of 1 settings."


SCALED = f"""
title = "two rows"
seeds = [1]
{SETTINGS}
rounds = 20
[[rows]]
label = "ours"
recipe = "fedavg"
settings.training.learning-rate = 0.2
paper.result = {{ average = 91.13 }}
[[rows]]
label = "theirs"
recipe = "fedavg"
settings.training.learning-rate = 0.01
[scale.long]
kind = "league"
reference = "ours"
average-share = 0.1
"""


def test_a_scale_can_be_a_league_with_its_own_window_and_the_papers_numbers(tmp_path: Path) -> None:
    (tmp_path / "scaled.toml").write_text(SCALED)
    experiment = named_experiment([str(tmp_path / "scaled.toml")])
    assert checked_plan(experiment, RunSelection()).experiment.kind == "runs"
    plan = checked_plan(experiment, RunSelection("long"))
    assert all(cell.config().federation.evaluate_tiers_every == 1 for cell in plan.cells)
    simulated = Simulated(accuracy=lambda config, number: config.training.learning_rate + number / 100)
    printed, league, *_ = run_comparison(plan, tmp_path / "out", simulate=simulated, progress=Quiet()).tables
    # A tenth of 20 rounds: the mean of rounds 19 and 20 is 0.2 + 0.195.
    assert dict(zip(printed.columns, printed.rows[0], strict=True))["paper"] == "91.13"
    assert printed.columns[1] == "average of last 2 (%)"
    assert (printed.caption, printed.rows[0][1]) == ("result: with the paper's numbers", "39.50")
    assert (league.caption, league.rows[0][1]) == ("result", "39.50")
    assert league.rows[1][-1] == "-19.0 (one seed)"


@pytest.mark.parametrize("text", [SCALED, LEAGUE], ids=["scale", "league"])
def test_without_its_reference_it_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "league.toml").write_text(text.replace('reference = "ours"', 'reference = "hours"'))
    with pytest.raises(ConfigError, match=r"no row is called 'hours'.*did you mean 'ours'"):
        named_experiment([str(tmp_path / "league.toml")])
