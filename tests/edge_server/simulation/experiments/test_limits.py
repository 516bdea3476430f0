"""What a comparison cannot show: weights and scores within a twentieth of uniform."""

import pytest

from edge_server.simulation.experiments.cells import Cell, CellRun, EndedRun, RunSelection
from edge_server.simulation.experiments.compare import checked_plan, named_experiment
from edge_server.simulation.experiments.runs import comparison_limits, is_uniform
from tests.edge_server.simulation.experiments.made_up import record


def cell(recipe: str) -> Cell:
    words = ("data.source=digits", "num-clients=2", "rounds=2")
    return checked_plan(named_experiment([recipe, "fedavg"]), RunSelection(overrides=words)).cells[0]


def ended(of: Cell, **observed: dict[str, float]) -> EndedRun:
    history = (record(1, 0.5), record(2, 0.6).model_copy(update=observed))
    return EndedRun(CellRun(of, 1), history)


@pytest.mark.parametrize(
    ("values", "uniform"), [((0.5, 0.5), True), ((1.04, 0.96), True), ((1.06, 0.94), False)]
)
def test_uniform_is_within_a_twentieth_of_the_mean(values: tuple[float, float], uniform: bool) -> None:
    assert is_uniform(dict(zip("ab", values, strict=True))) is uniform


def test_a_weighting_that_hardly_differs_from_uniform_is_named() -> None:
    igfl = cell("igfl")
    assert igfl.config().strategy.weighting.name != "examples"
    (line,) = comparison_limits([ended(igfl, weights={"a": 0.51, "b": 0.49})])
    assert line == (
        "igfl, result: all weights lie within 5% of uniform: "
        "what the weighting does cannot be seen at this length."
    )
    assert comparison_limits([ended(igfl, weights={"a": 0.6, "b": 0.4})]) == []
    # One run that differs is enough.
    both = [ended(igfl, weights={"a": 0.51, "b": 0.49}), ended(igfl, weights={"a": 0.6, "b": 0.4})]
    assert comparison_limits(both) == []


def test_rounds_without_weights_to_compare_say_nothing() -> None:
    assert comparison_limits([ended(cell("igfl"))]) == []
    assert comparison_limits([ended(cell("igfl"), weights={"a": 1.0})]) == []


def test_weights_by_examples_say_nothing_of_a_weighting() -> None:
    assert comparison_limits([ended(cell("fedprox"), weights={"a": 0.5, "b": 0.5})]) == []


def test_selection_scores_that_hardly_differ_are_named() -> None:
    (line,) = comparison_limits([ended(cell("adafl"), attention={"a": 0.5, "b": 0.5})])
    assert "adafl, result: all selection scores" in line
