"""`check` says what frozen layers cost a board, once and in each epoch."""

import pytest

from edge_client.models.frozen_part import SplitNetwork, _Search
from edge_server.config.load import load_config
from edge_server.simulation.board_costs import TierCost, describe_boards
from edge_server.simulation.rehearsal import rehearse

WORDS = ["model.name=mlp", "model.input-shape=[1, 8, 8]", "model.num-classes=10", "tiers.ratios=[0.5, 0.0]"]


def costs(*words: str) -> tuple[TierCost, ...]:
    return rehearse(load_config("heterofl", [*WORDS, *words]), None).costs


def test_frozen_layers_count_once_and_the_others_in_each_epoch() -> None:
    """64 -> 200 -> 200 -> 10: frozen 64 * 200 + 200 * 200, and three passes of 200 * 10 in an epoch."""
    whole, same = costs("training.train=head")
    assert (whole.once, whole.each) == (52_800, 6_000)
    assert (same.once, same.each) == (whole.once, whole.each)
    mirrored, _ = costs("training.train=head", 'training.mirror=["left-right"]')
    assert (mirrored.once, mirrored.each) == (2 * whole.once, 2 * whole.each)
    assert mirrored.memory > whole.memory


def test_the_split_of_a_network_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For all devices of a tier, for the server's tests, and for the costs of both tiers."""
    searched, find = list[object](), _Search.find

    def counted(search: _Search) -> SplitNetwork:
        searched.append(search)
        return find(search)

    monkeypatch.setattr(_Search, "find", counted)
    rehearse(load_config("fedavg", [*WORDS, "training.train=head"]), None)
    assert len(searched) == 3


def test_a_tier_that_cuts_trained_layers_costs_less_in_each_epoch() -> None:
    """Tier 1 keeps 100 of the channels between the two trained layers: 200 * 100 + 100 * 10."""
    first, second = costs('training.train=["linear2", "linear3"]', "tiers.ratios=[{ linear2 = 0.5 }, 0.0]")
    assert (first.once, second.once) == (12_800, 12_800)
    assert (first.each, second.each) == (3 * 21_000, 3 * 42_000)


def test_nothing_is_said_where_all_layers_are_trained() -> None:
    assert costs() == ()


def test_equal_tiers_have_one_line_with_the_weakest_board_that_holds_them() -> None:
    small, large = TierCost(1, 70_500_000, 11_500, 31_000_000), TierCost(3, 10**9, 10**6, 10**12)
    first, last = describe_boards((small, TierCost(2, small.once, small.each, small.memory), large))
    assert first.startswith("tier 1: an example passes through the frozen layers once (70.5 M")
    # 2 * 70.5 M operations at 1.77 GFLOP/s are 80 ms.
    assert "a pi-zero-2 has it, and takes 80 ms once" in first
    assert last.startswith("tier 3")
    assert last.endswith("no board of the profiles has it")


def test_a_time_below_a_second_is_in_milliseconds() -> None:
    (line,) = describe_boards((TierCost(1, 1_769_579_599, 0, 1),))
    assert "takes 2 s once" in line


def test_nothing_is_said_where_all_layers_run_in_every_step() -> None:
    assert costs("training.train=biases") == ()
