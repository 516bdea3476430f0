"""Which settings [privacy] can be combined with, and which are refused as they cannot be accounted for."""

import pytest

from edge_server.config.load import load_config, recipe_names
from schemas.errors import ConfigError

ON = ("privacy.mechanism=gaussian",)


def refused(recipe: str, *words: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(recipe, [*ON, *words])
    return str(caught.value)


def test_privacy_is_off_unless_a_mechanism_is_named():
    assert load_config("fedavg").make_strategy().privacy is None
    assert load_config("fedavg", ["privacy.clip=2.0"]).make_strategy().privacy is None


@pytest.mark.parametrize("pruner", ["index", "magnitude", "random", "layers"])
def test_all_pruners_with_fixed_ratios_can_be_accounted_for(pruner):
    config = load_config("dp-heterofl", [f"strategy.pruner={pruner}"])
    mechanism = config.make_strategy().privacy
    assert mechanism is not None
    assert (mechanism.noise_multiplier, mechanism.clip, mechanism.budget) == (2.0, 0.2, 8.0)


def test_local_objectives_that_send_nothing_can_be_accounted_for():
    words = ['strategy.objectives=[{name = "prox", mu = 0.1}]', "strategy.server-optimizer=adam"]
    load_config("dp-fedavg", words)


@pytest.mark.parametrize(
    ("recipe", "words", "reason", "remedy"),
    [
        ("fedavg", (), "[strategy] weighting: 'examples' gives weights that tell of", 'weighting = "equal"'),
        ("dp-fedavg", ("strategy.selection=attention",), "'attention' chooses by", 'selection = "uniform"'),
        ("dp-fedavg", ("strategy.ratio=bandit",), "'bandit' learns from what", 'ratio = "by-tier"'),
        ("dp-fedavg", ("strategy.combiner=median",), "'median' is not a sum", 'combiner = "mean"'),
        ("dp-fedavg", ("mode=buffered", "buffer-size=2"), "[clients] mode: 'buffered'", 'mode = "rounds"'),
        ("attending", (), "pruner: 'attention' lets devices send scores", 'pruner = "index"'),
    ],
)
def test_a_component_that_cannot_be_accounted_for_is_refused_with_a_remedy(recipe, words, reason, remedy):
    (line,) = [line for line in refused(recipe, *words).splitlines() if reason in line]
    assert line.endswith(f'set {remedy}, or [privacy] mechanism = "none"')


@pytest.mark.parametrize(
    ("recipe", "line"),
    [
        (
            "scaffold",
            "objectives: 'scaffold' sends control with the model, which gets no noise: leave it out",
        ),
        ("scaffold", "groups: 'control' makes more of updates than their noisy sum: leave it out"),
        ("fednova", "transforms: 'normalise-steps' makes more of updates than their noisy sum: leave it out"),
        ("igfl-c", "groups: 'last-step' makes more of updates than their noisy sum"),
        ("fedmix", "objectives: 'mix' sends mean-data with the model"),
        ("fedgh", "objectives: 'prototypes' sends prototypes with the model"),
    ],
)
def test_groups_sent_with_the_model_are_refused(recipe, line):
    assert f"[strategy] {line}" in refused(recipe)


@pytest.mark.parametrize(
    ("recipe", "words", "line"),
    [
        ("dp-fedavg", ("privacy.delta=0.2",), "[privacy] delta: 0.2 is not below 1 / num-clients"),
        ("dp-fedavg", ("budget=1.9",), "[privacy] budget: the first round alone spends epsilon 1.993 of 1.9"),
        ("dp-heterofl", ("amplification=true",), "and [tiers] ratios differ: set amplification = false"),
        ("dp-fedavg", ("amplification=true", "strategy.pruner=layers"), "pruner 'layers' gives each its own"),
    ],
)
def test_settings_that_would_give_a_false_guarantee_are_refused(recipe, words, line):
    assert line in refused(recipe, *words)


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("clip=0", '[privacy] clip: a number above 0 or "adaptive", got 0'),
        ("clip=adaptiv", "[privacy] clip: a number above 0 or \"adaptive\", got 'adaptiv'"),
        ("noise-multiplier=0", "[privacy] noise-multiplier: input should be greater than 0"),
        ("delta=1.0", "[privacy] delta: input should be less than 1"),
        ("quantile-noise=1.0", "must be above 1"),
        ("privacy.epsilon=3", "unknown key 'epsilon'"),
    ],
)
def test_invalid_settings_are_named_in_the_error(word, reason):
    assert reason in refused("dp-fedavg", word)


def test_the_privacy_recipes_exist():
    assert {"dp-fedavg", "dp-fedavg-adaptive", "dp-heterofl"} <= set(recipe_names())
