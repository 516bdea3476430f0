"""FedMix's pool on the server (Yoon et al. 2021): what it stores, what devices receive and may send."""

import numpy as np
import pytest

from edge_server.strategy.closing import close_round
from edge_server.strategy.components import make_strategy
from edge_server.strategy.groups.registry import MeanData
from edge_server.strategy.groups.rule import MAX_ROWS
from edge_server.strategy.planning import downlink_groups
from edge_server.strategy.strategy import start_state
from schemas.errors import ConfigError
from schemas.strategy import Component, StrategySpec
from schemas.submodel import SubModelSpec
from schemas.values import ModelSpec
from tests.edge_server.strategy.network import MAP, RATIOS, arrays, update

SMALL = SubModelSpec(kept={"hidden": 2})


def means(value: float, rows: int = 1) -> dict[str, np.ndarray]:
    return {
        "images": np.full((rows, 1, 2, 2), value, np.float32),
        "labels": np.tile(np.float32([0.25, 0.75]), (rows, 1)),
    }


def strategy(**options: int):
    return make_strategy(StrategySpec(groups=(Component(name="mean-data", options=options),)), RATIOS)


def after(fedmix, *rounds):
    """The state after rounds of {client: means}."""
    state = start_state(fedmix, arrays(0))
    for sent in rounds:
        updates = [
            update(client, arrays(1), spec=SMALL, **({"mean-data": group} if group else {}))
            for client, group in sent.items()
        ]
        state = close_round(fedmix, state, updates, MAP)
    return state


def values(fedmix, state, spec: SubModelSpec = SMALL) -> list[float]:
    pool = downlink_groups(fedmix, state, spec, MAP).get("mean-data")
    return [] if pool is None else [float(image.mean()) for image in pool["images"]]


def test_devices_receive_no_means_before_any_client_has_sent_some() -> None:
    fedmix = strategy()
    assert "mean-data" not in downlink_groups(fedmix, start_state(fedmix, arrays(0)), SMALL, MAP)
    assert values(fedmix, after(fedmix, {"a": None})) == []


def test_every_sub_model_receives_the_means_of_all_clients_in_client_order() -> None:
    fedmix = strategy()
    state = after(fedmix, {"b": means(2), "a": means(1, rows=2)}, {"c": means(3), "a": None})
    assert values(fedmix, state) == values(fedmix, state, SubModelSpec()) == [1, 1, 2, 3]
    assert downlink_groups(fedmix, state, SMALL, MAP)["mean-data"]["labels"].shape == (4, 2)


def test_new_means_of_a_client_replace_its_earlier_ones() -> None:
    fedmix = strategy()
    assert values(fedmix, after(fedmix, {"a": means(1, rows=3), "b": means(2)}, {"a": means(5)})) == [5, 2]


def test_the_model_is_averaged_as_without_a_pool() -> None:
    plain = make_strategy(StrategySpec(), RATIOS)
    with_pool, without = after(strategy(), {"a": means(1)}), after(plain, {"a": None})
    assert all((with_pool.params[name] == array).all() for name, array in without.params.items())


def test_every_round_sends_another_draw_of_at_most_the_pools_size() -> None:
    fedmix = strategy(pool=4)
    everyone = {f"c{k:02}": means(k) for k in range(30)}
    first = after(fedmix, everyone)
    drawn = values(fedmix, first)
    assert len(set(drawn)) == 4
    assert drawn == sorted(drawn) == values(fedmix, first, SubModelSpec())
    rounds = [values(fedmix, after(fedmix, everyone, *[{"c00": None}] * more)) for more in range(4)]
    assert rounds[0] == drawn
    assert len({tuple(draw) for draw in rounds}) > 1


@pytest.mark.parametrize(
    "labels",
    [[[0.25, 0.75]], [[0.5, 0.5], [0.9, 0.9]], [[0.5, 0.5], [-1, 2]]],
    ids=["fewer labels than images", "sum above one", "negative"],
)
def test_invalid_averages_are_left_out(labels: list[list[float]]) -> None:
    fedmix = strategy()
    odd = {**means(1, rows=2), "labels": np.float32(labels)}
    assert values(fedmix, after(fedmix, {"a": odd, "b": means(2)})) == [2]


def test_a_device_may_send_averages_of_the_networks_shape() -> None:
    network = ModelSpec(name="mlp", input_shape=(3, 8, 8), num_classes=7)
    assert MeanData().shapes({}, network) == {"images": (None, 3, 8, 8), "labels": (None, 7)}
    from edge_client.training.objectives.fedmix import MAX_MEANS

    assert MAX_MEANS <= MAX_ROWS


def test_an_empty_pool_is_refused() -> None:
    with pytest.raises(ConfigError, match="pool must be at least 1"):
        strategy(pool=0)
