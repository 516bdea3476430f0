"""Contradictory settings are refused before a run, with section, key, reason and remedy."""

import re

import pytest

from edge_server.cli.main import main
from edge_server.config.checks.combinations import problems
from edge_server.config.config import Config
from edge_server.config.load import check_config, load_config, read_recipe, recipe_names
from edge_server.config.test_data import merge_tables
from edge_server.strategy.aggregation.combiners import COMBINERS
from edge_server.strategy.aggregation.transforms import TRANSFORMS
from schemas.errors import ConfigError


def found(recipe: str = "fedavg", **sections: dict[str, object]) -> list[str]:
    """Return the problems of a recipe with these sections over it."""
    config = Config.model_validate(merge_tables(read_recipe(recipe), sections), by_alias=True, by_name=False)
    errors = problems(config, config.make_strategy())
    assert all(error.key and error.reason and error.remedy for error in errors if "tiers" not in error.key)
    return [str(error) for error in errors]


def strategy(recipe: str = "fedavg", **keys: object) -> list[str]:
    """Return the problems of a recipe with these keys over its [strategy], with SGD."""
    stated = {key.replace("_", "-"): value for key, value in keys.items()}
    return found(recipe, strategy=stated, training={"optimizer": "sgd"})


# --- valid combinations ---
@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_is_free_of_problems(name):
    assert found(name) == []


def test_the_server_may_sum_masked_updates_beside_models_that_devices_keep():
    assert found("ditto", privacy={"secure-aggregation": True}) == []
    (problem,) = found("fedper", privacy={"secure-aggregation": True})
    assert "'head' stays on devices, and [privacy] secure-aggregation sums whole models" in problem


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        ({"federation": {"deliver": "none"}, "simulation": {"hold-out": 0.2}}, "nothing is delivered"),
        ({}, "they hold out none: set \\[simulation\\] hold-out"),
    ],
)
def test_models_that_nobody_gets_or_measures_are_not_personalised(sections, reason):
    (problem,) = found(training={"personalise-epochs": 3}, **sections)
    assert problem.startswith("[training] personalise-epochs: ")
    assert re.search(reason, problem)


@pytest.mark.parametrize(
    "sections",
    [
        {"strategy": {"pruner": "index"}},
        {"strategy": {"pruner": "magnitude", "transforms": ["fill-with-global"]}},
        {"strategy": {"objectives": [{"name": "prox", "mu": 0.1}]}},
        {"strategy": {"combiner": "median", "weighting": "equal"}},
        {
            "strategy": {"transforms": ["normalise-steps", "attention-matching", "fill-with-global"]},
            "training": {"optimizer": "sgd"},
        },
        {"training": {"learning-rate-decay": 0.99}},
        {"tiers": {"epochs-per-tier": [1, 2, 5]}},
        {"training": {"momentum": 0.9}},
        {"training": {"optimizer": "adam"}},
        {"clients": {"fraction": 0.1}},
        {"strategy": {"downlink": ["delta", "int8", "zstd"]}},
        {"tiers": {"ratios": [{"conv2": 0.3}, 0.0]}},
        {"training": {"personalise-epochs": 3}, "simulation": {"hold-out": 0.2}},
        {"strategy": {"own": "model"}, "simulation": {"hold-out": 0.2}, "firewall": {"canary": 0.1}},
    ],
    ids=str,
)
def test_unusual_settings_and_settings_without_effect_are_accepted(sections):
    assert found("attending-common", **sections) == []


# --- groups ---
def test_an_objective_without_its_rule_is_refused():
    assert strategy("scaffold", groups=[]) == [
        "[strategy] objectives: 'scaffold' receives the group 'control', which no rule serves: "
        'add groups = ["control"]'
    ]
    assert strategy("fedgh", groups=[]) == [
        "[strategy] objectives: 'prototypes' sends the group 'prototypes', which no rule serves: "
        'add groups = ["header"]'
    ]


def test_a_rule_without_its_objective_is_refused():
    assert strategy("scaffold", objectives=[]) == [
        "[strategy] groups: 'control' is for the group 'control', which no objective receives or sends: "
        'add objectives = ["scaffold"], or leave it out'
    ]
    assert strategy("hermes", objectives=[]) == [
        "[strategy] groups: 'overlap' is for the group 'overlap', which no objective receives: "
        'add objectives = ["personal"], or leave it out'
    ]


def test_an_objective_reserved_for_pruners_is_refused():
    assert strategy("attending-common", objectives=[{"name": "attentive", "layers": ["conv2"]}]) == [
        "[strategy] objectives: 'attentive' sends the group 'attention', which no rule serves: "
        "leave it out (a pruner that needs it adds it)"
    ]


# --- duplicates ---
@pytest.mark.parametrize(
    ("recipe", "key", "component"),
    [("attending", "transforms", "fill-with-global"), ("fedprox", "objectives", "prox")],
)
def test_a_component_that_is_named_twice_is_refused(recipe, key, component):
    assert strategy(recipe, **{key: [component, component]})[0] == (
        f"[strategy] {key}: '{component}' is named 2 times: name it once"
    )


def test_a_group_that_is_sent_twice_is_refused():
    found_problems = strategy("scaffold", objectives=["scaffold", "scaffold"], groups=["control", "control"])
    assert "[strategy] groups: 'control' is named 2 times: name it once" in found_problems
    assert (
        "[strategy] objectives: 2 of them send the group 'control': leave all but one out" in found_problems
    )


# --- local training ---
@pytest.mark.parametrize(("recipe", "objective"), [("scaffold", "scaffold"), ("igfl-c", "igfl")])
def test_an_objective_for_another_optimizer_is_refused(recipe, objective):
    assert found(recipe, training={"optimizer": "adam"}) == [
        f"[training] optimizer: objective '{objective}' is made for sgd, not 'adam': "
        'set optimizer = "sgd" or leave the objective out'
    ]


def test_counting_steps_with_a_different_momentum_is_refused():
    assert found("fednova", training={"momentum": 0.9}) == [
        "[strategy] transforms: 'normalise-steps' counts steps with momentum 0.0, but [training] momentum "
        'is 0.9: write { name = "normalise-steps", momentum = 0.9 }'
    ]
    stated = {"transforms": [{"name": "normalise-steps", "momentum": 0.9}]}
    assert found("fednova", training={"momentum": 0.9}, strategy=stated) == []


def test_counting_steps_of_adam_is_refused():
    assert found("fednova", training={"optimizer": "adam"}) == [
        "[training] optimizer: transform 'normalise-steps' counts steps of sgd, not of 'adam': "
        'set optimizer = "sgd" or leave the transform out'
    ]


# --- aggregation ---
@pytest.mark.parametrize("scale", TRANSFORMS.having(lambda traits: traits.scales))
def test_scaling_after_moving_channels_is_refused(scale):
    transforms = ["attention-matching", scale, "fill-with-global"]
    assert strategy("attending-literal", transforms=transforms) == [
        f"[strategy] transforms: '{scale}' after 'attention-matching' would scale the moving of channels "
        "too: name it before 'attention-matching'"
    ]


@pytest.mark.parametrize("combiner", COMBINERS.having(lambda traits: not traits.takes_weights))
def test_weights_that_the_combiner_ignores_are_refused(combiner):
    assert strategy("igfl-s-self", combiner=combiner) == [
        f"[strategy] weighting: combiner '{combiner}' does not go by weights, so those of 'igfl-self' "
        'would be lost: set combiner = "mean", or weighting = "examples"'
    ]


def test_weights_by_held_out_data_are_refused_if_no_data_is_held_out():
    assert found("fedrad", simulation={"hold-out": 0.0}) == [
        "[simulation] hold-out: weighting 'fedrad' goes by what devices measure on data that they hold out, "
        "and here they hold out none: set hold-out = 0.2"
    ]


MOVED = "[strategy] transforms: 'attention-matching' "
LEFT_OUT = "leave it out: channels then have one common order"


def test_moving_channels_by_scores_that_nobody_sends_is_refused():
    assert strategy("attending-literal", pruner="index") == [
        f"{MOVED}needs the scores that pruner 'attention' asks for, not 'index': {LEFT_OUT}"
    ]


def test_moving_channels_without_what_devices_keep_is_refused():
    also = {"objectives": ["scaffold"], "groups": ["control"]}
    assert strategy("attending-literal", **also) == [
        f"{MOVED}moves the model's channels, not those of the group 'control': {LEFT_OUT}"
    ]
    assert strategy("attending-literal", uplink=["delta", {"name": "top-k", "share": 0.1}]) == [
        f"{MOVED}moves the model's channels, not those of what a device has not sent yet (uplink): {LEFT_OUT}"
    ]


# --- codecs ---
def test_deltas_are_refused_for_sub_models_that_change_every_round():
    message = "[strategy] downlink: 'delta' sends what has changed in a sub-model, but {} "
    message += "gives devices another one in every round: leave 'delta' out"
    assert strategy("feddrop", downlink=["delta", "zstd"]) == [message.format("pruner 'random'")]
    assert strategy("hermes", downlink=["delta"]) == [message.format("pruner 'magnitude'")]
    assert strategy("fedavg", ratio="bandit", downlink=["delta"]) == [message.format("ratio 'bandit'")]
    assert strategy("feddrop", downlink=["int8", "zstd"]) == []


# --- rounds ---
@pytest.mark.parametrize("recipe", ["fedmix", "fedgh"])
def test_objectives_that_need_torch_are_refused_in_a_simulation_without_it(recipe):
    load_config(recipe, ["simulation.trainer=torch"])
    with pytest.raises(
        ConfigError,
        match=r"\[simulation\] trainer: the objective '.+' needs torch.*: set trainer = \"torch\"",
    ):
        load_config(recipe, ["simulation.trainer=onnx"])


def test_two_statements_of_the_epochs_are_refused():
    schedule = {"name": "constant", "value": 3}
    assert found(strategy={"local-epochs": schedule}, tiers={"epochs-per-tier": [1]}) == [
        "[tiers] epochs-per-tier: [strategy] local-epochs sets the epochs of all tiers: leave one out"
    ]


def test_epochs_in_place_of_a_share_are_refused():
    assert strategy(fraction={"name": "random-intervals", "interval": 5}) == [
        "[strategy] fraction: 'random-intervals' gives 5 in round 1: "
        "a share of the devices is above 0 and at most 1"
    ]


def test_shares_in_place_of_epochs_are_refused():
    assert strategy(local_epochs={"name": "step-up", "start": 0.1, "end": 0.5}) == [
        "[strategy] local-epochs: 'step-up' gives less than one epoch in round 1: "
        "give it numbers of 1 or more"
    ]


def test_choosing_a_share_of_devices_is_refused_in_buffered_mode():
    reason = "says nothing in [clients] mode 'buffered', where no round chooses its devices: "
    remedy = 'leave it out and set [clients] concurrency, or set mode = "rounds"'
    assert strategy("fedbuff", fraction={"name": "step-up"}) == [
        f"[strategy] fraction: 'step-up' {reason}{remedy}"
    ]
    assert found("fedbuff", clients={"fraction": 0.5}) == [f"[clients] fraction: 0.5 {reason}{remedy}"]
    assert found("fedbuff", clients={"fraction": 0.5, "mode": "rounds"}) == []


# --- layers ---
def test_layers_missing_from_the_network_are_refused_with_the_nearest_name():
    found_problems = found("attending", tiers={"ratios": [{"conv3": 0.5}, 0.0, {"linear9": 0.1}]})
    assert (
        found_problems[0]
        == "[tiers] ratios: tier 1 of 'two-nn': no channels to prune match 'conv3' (did you mean 'conv2'?)"
    )
    assert found_problems[1].startswith(
        "[tiers] ratios: tier 3 of 'two-nn': no channels to prune match 'linear9'"
    )


def test_layers_of_a_users_own_network_are_checked_if_its_shapes_are_stated():
    own = {"name": "edge_client.models.cnn:MLP"}
    tiers = {"ratios": [{"hidden9": 0.5}]}
    assert found(model=own, tiers=tiers) == []
    shapes = {"input-shape": [1, 8, 8], "num-classes": 10}
    (problem,) = found(model={**own, **shapes}, tiers=tiers)
    assert problem.startswith(
        "[tiers] ratios: tier 1 of 'edge_client.models.cnn:MLP': no channels to prune match"
    )


# --- messages to the user ---
def test_every_problem_has_one_line_with_the_files_name():
    table = merge_tables(read_recipe("scaffold"), {"training": {"optimizer": "adam"}})
    table = merge_tables(table, {"strategy": {"groups": []}})
    with pytest.raises(ConfigError) as refused:
        check_config(table, "home.toml")
    lines = str(refused.value).splitlines()
    assert [line.split(" ")[:3] for line in lines] == [
        ["home.toml:", "[strategy]", "objectives:"],
        ["home.toml:", "[training]", "optimizer:"],
    ]


def test_the_command_exits_with_2_and_the_reason(capsys):
    assert main(["check", "fedrad", "hold-out=0"]) == 2
    assert "fedrad: [simulation] hold-out: weighting 'fedrad' goes by" in capsys.readouterr().err


def test_an_override_is_refused_like_a_file():
    with pytest.raises(ConfigError, match=r"^fednova: \[strategy\] transforms: 'normalise-steps' counts"):
        load_config("fednova", ["momentum=0.5"])


def test_only_pictures_with_boxes_are_joined() -> None:
    (found_one,) = found(training={"augment": ["flip", "mosaic"]})
    assert found_one.startswith("[training] augment: 'mosaic' joins pictures with boxes")
    assert not found(training={"augment": ["flip"]})
