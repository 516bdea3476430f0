"""The group `widths`: the smaller tiers in a device's sub-model, in the device's own coordinates."""

from edge_server.strategy.components import make_strategy
from edge_server.strategy.groups.widths import Widths, smaller_tiers
from edge_server.strategy.planning import downlink_groups
from edge_server.strategy.strategy import State
from schemas.strategy import Component, StrategySpec
from schemas.submodel import SubModelSpec
from tests.edge_server.strategy.network import MAP, RATIOS, arrays

TIERS = (SubModelSpec(kept={"hidden": (1, 3)}), SubModelSpec(kept={"hidden": (0, 1, 3, 4)}), SubModelSpec())


def down(spec: SubModelSpec, tiers: tuple[SubModelSpec, ...] = TIERS) -> dict[str, list[int]]:
    return {name: array.tolist() for name, array in Widths().down({}, spec, MAP, lambda: tiers).items()}


def test_a_device_gets_the_smaller_tiers_smallest_first() -> None:
    assert down(TIERS[2]) == {"0/hidden": [1, 3], "1/hidden": [0, 1, 3, 4]}
    assert down(TIERS[2], TIERS[::-1]) == down(TIERS[2])


def test_channels_are_positions_in_the_devices_own_sub_model() -> None:
    # Of the channels 0 1 3 4, channels 1 and 3 are the second and the third.
    assert down(TIERS[1]) == {"0/hidden": [1, 2]}


def test_the_smaller_tiers_of_a_sub_model_are_parts_of_it() -> None:
    assert smaller_tiers(TIERS[2], MAP, (*TIERS, TIERS[0])) == [TIERS[0], TIERS[1]]
    assert smaller_tiers(SubModelSpec(kept={"hidden": (0, 1, 2)}), MAP, TIERS) == []


def test_the_smallest_tier_gets_nothing() -> None:
    assert down(TIERS[0]) == {}


def test_a_tier_that_is_no_part_of_the_devices_channels_is_left_out() -> None:
    assert down(SubModelSpec(kept={"hidden": (0, 1, 2)})) == {}


def test_nothing_is_sent_before_channels_are_ranked() -> None:
    spec = StrategySpec(
        pruner=Component(name="attention"),
        objectives=(Component(name="ordered-dropout"),),
        groups=(Component(name="widths"),),
    )
    strategy = make_strategy(spec, RATIOS)
    unranked = State(params=arrays(0))
    assert downlink_groups(strategy, unranked, SubModelSpec(), MAP, lambda: TIERS).keys() == {"model"}
    ranked = State(params=arrays(0), pruning={"hidden": arrays(0)["hidden.bias"]})
    assert downlink_groups(strategy, ranked, SubModelSpec(), MAP, lambda: TIERS).keys() == {"model", "widths"}
