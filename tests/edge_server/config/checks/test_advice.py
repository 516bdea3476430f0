"""Advice about recipes, for files that are valid."""

import pytest

from edge_server.config.checks.advice import advice
from edge_server.config.load import load_config


@pytest.mark.parametrize("recipe", ["attending", "attending-adafl", "fedavg", "fedavgm"])
def test_recipes_that_suit_their_fleet_get_no_advice(recipe: str) -> None:
    assert list(advice(load_config(recipe))) == []


@pytest.mark.parametrize("recipe", ["heterofl", "feddrop", "attending-l1"])
def test_tiers_that_larger_devices_do_not_train_get_advice(recipe: str) -> None:
    (line,) = advice(load_config(recipe))
    assert "Recipe 'attending' trains it on larger devices too" in line


def test_channels_moved_by_each_clients_own_order_get_advice() -> None:
    assert any("'attention-matching'" in line for line in advice(load_config("attending-literal")))


@pytest.mark.parametrize(
    ("recipe", "objective"),
    [("fedmix", "'mix'"), ("fedgh", "'prototypes'"), ("fjord", "'ordered-dropout' with distil")],
)
def test_objectives_that_need_torch_on_the_device_are_named(recipe: str, objective: str) -> None:
    (line,) = (line for line in advice(load_config(recipe)) if "torch" in line)
    assert f"the objective {objective} needs torch on the device. Devices without torch are left out" in line


def test_smaller_tiers_that_do_not_exist_get_advice() -> None:
    (line,) = advice(load_config("attending", ["tiers.ratios=[0.0]"]))
    assert "recipe 'fedavgm' does the same with less" in line


def test_tiers_of_frozen_networks_get_advice() -> None:
    started, head, table = (
        "from=weights.safetensors",
        "training.train=head",
        'tiers.ratios=[{ "*" = 0.5 }, 0.0]',
    )
    (line,) = advice(load_config("attending", [started, head, table]))
    assert "a table of [tiers] ratios cuts frozen layers" in line
    assert list(advice(load_config("attending", [started, table]))) == []
    (line,) = advice(load_config("attending", [started, head]))
    assert "all tiers have the whole of a frozen network, so there are no smaller tiers" in line


def test_a_trimmed_mean_that_trims_nothing_gets_advice() -> None:
    (line,) = advice(load_config("trimmed-mean", ["num-clients=4"]))
    assert "trim = 0.2 trims nothing of at most 4 devices: set trim to 0.25 or more" in line
    assert list(advice(load_config("trimmed-mean", ["num-clients=5"]))) == []


def test_a_small_rate_without_an_optimizer_is_told_to_be_that_of_sgd() -> None:
    (line,) = advice(load_config("fedavg", ["learning-rate=0.0005"]))
    assert 'set optimizer = "adam" if you mean Adam' in line
    assert list(advice(load_config("fedavg", ['optimizer="adam"', "learning-rate=0.0005"]))) == []


def test_robust_bounds_without_test_data_or_with_two_devices_are_told_to_bound_norms_alone() -> None:
    def lines(*words: str) -> list[str]:
        return list(advice(load_config("attending", ["firewall.robust=true", *words])))

    assert [line.split("leave-one-out ")[1] for line in lines()] == [
        "needs a [data] source to measure updates on"
    ]
    (line,) = lines('data.source="digits"', "num-clients=2")
    assert line.endswith("leave-one-out needs three devices to compare")
    assert lines('data.source="digits"', "num-clients=3") == []
    (line,) = lines(
        'data.source="yolo:photos"', "num-clients=3", "model.task=detection", "model.name=detector:cnn"
    )
    assert line.endswith("needs another task than detection, for which set [firewall] canary")
