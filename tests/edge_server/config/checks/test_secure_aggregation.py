"""Configurations that cannot be masked are refused before a run with section, key, reason and remedy."""

import pytest

from edge_server.cli.main import main
from edge_server.config.checks.combinations import problems
from edge_server.config.config import Config
from edge_server.config.load import load_config, read_recipe
from edge_server.config.test_data import merge_tables
from edge_server.coordinator.round_rules import make_rules
from edge_server.coordinator.tasks.masking import masking_terms
from schemas.errors import ConfigError
from schemas.submodel import SubModelSpec
from tests.edge_server.security.secure_aggregation.cohorts import CHANNELS, FULL, TIERS

MASKED = {"privacy": {"secure-aggregation": True}}


def found(recipe: str, **sections: dict[str, object]) -> list[str]:
    table = merge_tables(merge_tables(read_recipe(recipe), MASKED), sections)
    config = Config.model_validate(table, by_alias=True, by_name=False)
    return [str(error) for error in problems(config, config.make_strategy())]


@pytest.mark.parametrize("recipe", ["fedavg", "fedavgm", "fedadam", "fedprox", "igfl-c", "heterofl"])
def test_a_recipe_that_needs_only_the_mean_over_holders_can_be_masked(recipe):
    assert found(recipe, strategy={"pruner": "index"}) == []


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ("attending", "pruner: 'attention'"),
        ("feddrop", "pruner: 'random'"),
        ("hermes", "combiner: 'overlap-mean'"),
        ("hermes", "groups: 'overlap': it is made of single updates"),
        ("krum", "combiner: 'krum'"),
        ("median", "combiner: 'median'"),
        ("trimmed-mean", "combiner: 'trimmed-mean'"),
        ("igfl-self", "weighting: 'igfl-self'"),
        ("adafl", "selection: 'attention'"),
        ("fedmp", "ratio: 'bandit'"),
        ("fednova", "transforms: 'normalise-steps'"),
        ("scaffold", "groups: 'control': devices send it one by one"),
        ("fedbuff", 'set [clients] mode = "rounds"'),
    ],
)
def test_a_recipe_that_inspects_single_updates_is_refused(recipe, message):
    assert any(message in line for line in found(recipe))


def test_fewer_devices_than_holders_are_refused():
    assert found("heterofl", clients={"num-clients": 20, "fraction": 0.1}) == [
        "[privacy] min-holders: 3, but a round asks 2 of 20 devices: no sum would ever be shown: raise "
        "[clients] num-clients or fraction"
    ]


def test_a_cohort_too_large_for_its_messages_is_refused():
    assert "at most 500 agree on masks" in found("heterofl", clients={"num-clients": 501})[0]


def test_fewer_than_three_holders_are_refused():
    with pytest.raises(ConfigError, match="min-holders"):
        load_config("heterofl", ["min-holders=2"])


def test_half_a_cohort_must_not_be_able_to_unmask():
    with pytest.raises(ConfigError, match="threshold"):
        load_config("heterofl", ["privacy.threshold=0.5"])


def test_the_check_command_names_key_and_reason(capsys):
    assert main(["check", "krum", "secure-aggregation=true"]) == 2
    assert "[strategy] combiner: 'krum' goes by single updates" in capsys.readouterr().err


def test_a_masked_run_waits_for_the_devices_that_a_sum_needs():
    words = ["min-holders=4", "num-clients=8"]
    assert make_rules(load_config("heterofl", [*words, "secure-aggregation=true"])).min_clients == 4
    assert make_rules(load_config("heterofl", words)).min_clients == 1


def test_terms_follow_from_the_configuration_and_the_devices_of_a_round():
    config = load_config("heterofl", ["secure-aggregation=true", "value-range=2.0"])
    terms = masking_terms(config, [*TIERS, *TIERS], [5, 7, 9, 11, 13, 15], CHANNELS)
    assert (terms.value_range, terms.max_weight, terms.min_holders) == (2.0, 15, 3)
    assert {spec.model_dump_json() for spec in terms.specs} == {spec.model_dump_json() for spec in TIERS}
    equal = load_config("heterofl", ["secure-aggregation=true", 'strategy.weighting="equal"'])
    assert masking_terms(equal, [FULL] * 3, [5, 7, 9], CHANNELS).max_weight == 1


def test_terms_whose_shares_would_not_fit_a_message_are_refused():
    config = load_config("heterofl", ["secure-aggregation=true"])
    specs = [SubModelSpec(kept={"a": 1 + i % 6, "b": 1 + i // 6 % 4}) for i in range(480)]
    with pytest.raises(ConfigError, match="do not fit a message"):
        masking_terms(config, specs, [1] * 480, CHANNELS)
