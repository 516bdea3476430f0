"""Components from names and options; error messages use the names that users write."""

import pytest
from pydantic import ValidationError

from edge_server.strategy.components import make_component, make_strategy
from schemas.errors import ConfigError
from schemas.strategy import Component, StrategySpec

RATIOS = (0.5, 0.0)


@pytest.mark.parametrize(
    ("concept", "name", "message"),
    [
        ("fraction", "constnat", "unknown schedule 'constnat' (did you mean 'constant'?)"),
        ("local_epochs", "constan", "unknown schedule 'constan' (did you mean 'constant'?)"),
        ("selection", "unifrom", "unknown selection 'unifrom' (did you mean 'uniform'?)"),
        ("ratio", "by-teir", "unknown ratio policy 'by-teir' (did you mean 'by-tier'?)"),
        ("pruner", "atention", "unknown pruner 'atention' (did you mean 'attention'?)"),
        ("weighting", "example", "unknown weighting 'example' (did you mean 'examples'?)"),
        ("combiner", "meen", "unknown combiner 'meen' (did you mean 'mean'?)"),
        ("server_optimizer", "sdg", "unknown server optimizer 'sdg' (did you mean 'sgd'?)"),
    ],
)
def test_an_unknown_component_is_reported_with_the_most_similar_name(concept, name, message):
    with pytest.raises(ConfigError) as refused:
        make_strategy(StrategySpec(**{concept: Component(name=name)}), RATIOS)
    assert str(refused.value) == message


def test_an_unknown_transform_is_reported_with_the_most_similar_name():
    with pytest.raises(ConfigError, match="did you mean 'attention-matching'"):
        make_strategy(StrategySpec(transforms=(Component(name="attention-match"),)), RATIOS)


def test_without_a_similar_name_all_known_names_are_listed():
    with pytest.raises(ConfigError, match=r"unknown pruner 'zzz' \(known: .*attention.*index"):
        make_strategy(StrategySpec(pruner=Component(name="zzz")), RATIOS)


def test_an_unknown_option_is_reported_with_the_most_similar_name():
    component = Component(name="sgd", options={"learning_rat": 0.1})
    with pytest.raises(ConfigError) as refused:
        make_strategy(StrategySpec(server_optimizer=component), RATIOS)
    message = "server optimizer 'sgd' has no option 'learning-rat' (did you mean 'learning-rate'?)"
    assert str(refused.value) == message


def test_an_option_of_a_component_without_options_is_refused():
    with pytest.raises(ConfigError, match="combiner 'mean' has no option 'trim'"):
        make_strategy(StrategySpec(combiner=Component(name="mean", options={"trim": 1})), RATIOS)


@pytest.mark.parametrize(
    ("concept", "component"),
    [
        ("server_optimizer", Component(name="sgd", options={"learning_rate": 0.0})),
        ("server_optimizer", Component(name="sgd", options={"learning_rate": -1.0})),
        ("server_optimizer", Component(name="sgd", options={"learning_rate": "fast"})),
        ("pruner", Component(name="attention", options={"first_round": "never"})),
    ],
)
def test_an_option_with_an_impossible_value_is_refused(concept, component):
    with pytest.raises(ConfigError, match=f"'{component.name}'"):
        make_strategy(StrategySpec(**{concept: component}), RATIOS)


@pytest.mark.parametrize(
    ("concept", "component"),
    [
        # A likely mistake: the fraction is a separate schedule, not an option of the selection.
        ("selection", Component(name="uniform", options={"fraction": 0.5})),
        ("ratio", Component(name="by-tier", options={"ratios": 0.5})),
        ("fraction", Component(name="constant", options={"value": "half"})),
    ],
)
def test_an_option_of_the_wrong_type_is_refused_before_the_run(concept, component):
    with pytest.raises(ConfigError, match=f"'{component.name}'"):
        make_strategy(StrategySpec(**{concept: component}), RATIOS)


@pytest.mark.parametrize(
    ("concept", "component", "message"),
    [
        (
            "server_optimizer",
            Component(name="sgd", options={"learning_rate": "fast"}),
            "server optimizer 'sgd': learning-rate: input should be a valid number,"
            " unable to parse string as a number, got 'fast'",
        ),
        (
            "fraction",
            Component(name="constant", options={"value": (0.5, 0.25)}),
            "schedule 'constant': value: input should be a valid number, got (0.5, 0.25)",
        ),
        (
            "pruner",
            Component(name="attention", options={"first_round": 1}),
            "pruner 'attention': first-round: input should be a valid string, got 1",
        ),
    ],
)
def test_an_option_of_the_wrong_type_is_reported_with_its_value(concept, component, message):
    with pytest.raises(ConfigError) as refused:
        make_strategy(StrategySpec(**{concept: component}), RATIOS)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("concept", "component"),
    [
        ("selection", Component(name="uniform", options={"fraction": None})),
        # The type is right, but the tiers' ratios are set only in [tiers].
        ("ratio", Component(name="by-tier", options={"ratios": (0.5, 0.0)})),
    ],
)
def test_a_value_that_the_run_itself_provides_is_not_an_option(concept, component):
    (option,) = component.options
    with pytest.raises(ConfigError, match=f"'{component.name}' has no option '{option}'"):
        make_strategy(StrategySpec(**{concept: component}), RATIOS)


def test_a_whole_number_is_accepted_for_a_float():
    half = Component(name="sgd", options={"learning_rate": 2})
    assert make_strategy(StrategySpec(server_optimizer=half), RATIOS).server_optimizer.learning_rate == 2.0


@pytest.mark.parametrize(("ratios", "named"), [((0.0, 0.0), []), ((0.5, 0.0), ["ordered-dropout"])])
def test_devices_train_smaller_tiers_only_where_there_are_any(ratios, named):
    spec = StrategySpec(objectives=(Component(name="ordered-dropout"),))
    assert [component.name for component in make_strategy(spec, ratios).objectives] == named


def test_a_component_is_a_name_or_a_table_with_options():
    assert Component.model_validate("uniform") == Component(name="uniform")
    table = {"name": "attention", "first-round": "score-only"}
    assert Component.model_validate(table) == Component(
        name="attention", options={"first_round": "score-only"}
    )


@pytest.mark.parametrize("table", [{}, {"mu": 1.0}, {"name": 3}, {"name": "x", "mu": {"deep": 1}}, 7])
def test_an_invalid_component_is_refused(table):
    with pytest.raises(ValidationError):
        Component.model_validate(table)


def test_a_factory_receives_only_the_values_that_it_declares():
    def factory(given: int, chosen: int = 1) -> tuple[int, int]:
        return given, chosen

    made = make_component(
        "thing", {"x": factory}, Component(name="x", options={"chosen": 2}), given=3, unwanted=4
    )
    assert made == (3, 2)


def test_a_component_with_a_missing_option_is_refused():
    def factory(needed: int) -> int:
        return needed

    with pytest.raises(ConfigError, match=r"thing 'x': .*needed"):
        make_component("thing", {"x": factory}, Component(name="x"))


def test_an_option_that_the_run_provides_is_refused_with_a_list_of_known_options():
    def factory(given: int, chosen: int = 1) -> tuple[int, int]:
        return given, chosen

    component = Component(name="x", options={"given": 5})
    with pytest.raises(ConfigError, match=r"thing 'x' has no option 'given' \(known: chosen\)"):
        make_component("thing", {"x": factory}, component, given=3)
