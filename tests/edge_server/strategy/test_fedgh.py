"""FedGH's header (Yi et al. 2023): trained on class representations; numbers calculated by hand."""

import numpy as np
import pytest

from edge_client.pruning.index_sets import extract
from edge_server.strategy.closing import close_round
from edge_server.strategy.components import make_strategy
from edge_server.strategy.groups.header import Header
from edge_server.strategy.planning import downlink_groups
from edge_server.strategy.strategy import State, start_state
from schemas.errors import ConfigError
from schemas.strategy import Component, StrategySpec
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.values import ModelSpec
from tests.edge_server.strategy.network import MAP, RATIOS, arrays, update

WITHOUT_BIAS = ChannelMap(
    groups=MAP.groups, parameters={n: parameter for n, parameter in MAP.parameters.items() if n != "out.bias"}
)


def strategy(**options: float):
    component = Component(name="header", options=options or {"learning_rate": 1.0})
    return make_strategy(StrategySpec(groups=(component,)), RATIOS)


def zero_header(channel_map: ChannelMap = MAP) -> State:
    """A network of random numbers with a header of zeros."""
    params = {n: np.zeros_like(a) if n.startswith("out") else a for n, a in arrays(0).items()}
    return State(params={n: params[n] for n in channel_map.parameters})


def prototypes(rows: object, counts: object) -> dict[str, np.ndarray]:
    return {"out.weight": np.float32(rows), "counts": np.float32(counts)}


def sent(client: str, group, *, spec: SubModelSpec | None = None, channel_map: ChannelMap = MAP):
    delta = {n: a for n, a in arrays(1).items() if n in channel_map.parameters}
    whole = update(client, arrays(1), spec=spec, prototypes=group)
    return type(whole)(
        client, whole.spec, {**whole.groups, "model": extract(delta, whole.spec, channel_map)}, whole.examples
    )


def test_one_step_on_two_prototypes_matches_the_calculation() -> None:
    # W = 0, b = 0: every softmax is (1/2, 1/2). Class 0 is at p0 = (4, 0, 0, 0, 2), class 1 at
    # p1 = (0, 8, 0, 0, 2).
    # Errors over n = 2: (-1/4, 1/4) for p0, (1/4, -1/4) for p1.
    # dW[0] = -p0 / 4 + p1 / 4 = (-1, 2, 0, 0, 0), dW[1] is its negative; db = 0. At rate 1: W = -dW.
    both = prototypes([[4, 0, 0, 0, 2], [0, 8, 0, 0, 2]], [3, 9])
    after = close_round(strategy(), zero_header(), [sent("a", both)], MAP)
    assert after.params["out.weight"].tolist() == [[1, -2, 0, 0, 0], [-1, 2, 0, 0, 0]]
    assert after.params["out.bias"].tolist() == [0, 0]
    assert after.params["out.weight"].dtype == np.float32


def test_a_class_without_examples_has_no_prototype() -> None:
    # One prototype of class 1, (2, 0, 0, 0, 0), n = 1: error (1/2, -1/2). At rate 1:
    # W = ((-1, 0, ...), (1, 0, ...)), b = (-1/2, 1/2). If the empty class 0 counted as a
    # prototype of zeros, b would be 0.
    only = prototypes([[0] * 5, [2, 0, 0, 0, 0]], [0, 7])
    after = close_round(strategy(), zero_header(), [sent("a", only)], MAP)
    assert after.params["out.weight"].tolist() == [[-1, 0, 0, 0, 0], [1, 0, 0, 0, 0]]
    assert after.params["out.bias"].tolist() == [-0.5, 0.5]


def test_a_second_epoch_continues_from_the_first() -> None:
    # After the step above the scores of (2, 0, 0, 0, 0) are (-2.5, 2.5); p = softmax = (q, 1 - q) with
    # q = 1 / (1 + e^5) = 0.0066929. The next step adds -+ q * 2 to W's first column and -+ q to b.
    only, q = prototypes([[0] * 5, [2, 0, 0, 0, 0]], [0, 7]), 0.0066929
    two = strategy(learning_rate=1.0, epochs=2)
    after = close_round(two, zero_header(), [sent("a", only)], MAP)
    assert after.params["out.weight"][:, 0] == pytest.approx([-1 - 2 * q, 1 + 2 * q], abs=1e-6)
    assert after.params["out.bias"] == pytest.approx([-0.5 - q, 0.5 + q], abs=1e-6)


def test_different_widths_train_only_their_own_columns() -> None:
    # The client keeps channels 4 and 1: its prototype (6, 2) of class 0 is (0, 2, 0, 0, 6) in global
    # coordinates. Error (-1/2, 1/2) at rate 1: W[0] = (0, 1, 0, 0, 3).
    narrow = SubModelSpec(kept={"hidden": (4, 1)})
    group = prototypes([[6, 2], [0, 0]], [1, 0])
    after = close_round(strategy(), zero_header(), [sent("a", group, spec=narrow)], MAP)
    assert after.params["out.weight"].tolist() == [[0, 1, 0, 0, 3], [0, -1, 0, 0, -3]]


def test_clients_of_different_widths_take_steps_one_after_the_other() -> None:
    # a (whole): class 0 at (2, 0, 0, 0, 0): W[0] = (1, 0, 0, 0, 0), b = (1/2, -1/2) and W[1] = -W[0].
    # b (channels 0 and 1): class 1 at (0, 4, ...): its scores are b, (1/2, -1/2), with softmax (s, 1 - s)
    # with s = 1 / (1 + e^-1) = 0.7310586. W[0] loses s * 4 in column 1: -2.924234; b = 1/2 - s = -0.2310586.
    wide = sent("a", prototypes([[2, 0, 0, 0, 0], [0] * 5], [1, 0]))
    narrow = sent("b", prototypes([[0, 0], [0, 4]], [0, 1]), spec=SubModelSpec(kept={"hidden": 2}))
    for order in ([wide, narrow], [narrow, wide]):
        after = close_round(strategy(), zero_header(), order, MAP).params
        assert after["out.weight"][0] == pytest.approx([1, -2.924234, 0, 0, 0], abs=1e-6)
        assert after["out.weight"][1] == pytest.approx([-1, 2.924234, 0, 0, 0], abs=1e-6)
        assert after["out.bias"] == pytest.approx([-0.2310586, 0.2310586], abs=1e-6)


def test_a_header_without_bias_remains_without_bias() -> None:
    only = prototypes([[0] * 5, [2, 0, 0, 0, 0]], [0, 7])
    before = zero_header(WITHOUT_BIAS)
    after = close_round(strategy(), before, [sent("a", only, channel_map=WITHOUT_BIAS)], WITHOUT_BIAS)
    assert after.params["out.weight"].tolist() == [[-1, 0, 0, 0, 0], [1, 0, 0, 0, 0]]
    assert after.params.keys() == before.params.keys()


def test_the_header_is_trained_from_the_start_of_the_round_and_the_rest_is_averaged() -> None:
    slow, before = strategy(learning_rate=1e-9), State(params=arrays(0))
    after = close_round(slow, before, [sent("a", prototypes(np.ones((2, 5)), [1, 1]))], MAP).params
    plain = close_round(make_strategy(StrategySpec(), RATIOS), before, [update("a", arrays(1))], MAP).params
    assert (after["hidden.weight"] == plain["hidden.weight"]).all()
    assert after["out.weight"] == pytest.approx(before.params["out.weight"], abs=1e-7)


def test_without_prototypes_the_header_is_averaged() -> None:
    before = State(params=arrays(0))
    for client_update in (update("a", arrays(1)), sent("a", prototypes(np.zeros((2, 5)), [0, 0]))):
        after = close_round(strategy(), before, [client_update], MAP).params
        assert after["out.weight"] == pytest.approx(before.params["out.weight"] + arrays(1)["out.weight"])


def test_devices_receive_no_prototypes_and_send_them_as_wide_as_the_sub_model() -> None:
    fedgh = strategy()
    assert downlink_groups(fedgh, start_state(fedgh, arrays(0)), SubModelSpec(), MAP).keys() == {"model"}
    network = ModelSpec(name="mlp", input_shape=(1, 8, 8), num_classes=10)
    shapes = Header().shapes({"linear3.weight": (10, 60), "linear3.bias": (10,)}, network)
    assert shapes == {"linear3.weight": (10, 60), "counts": (10,)}


@pytest.mark.parametrize("options", [{"learning_rate": 0.0}, {"learning_rate": -1.0}, {"epochs": 0}])
def test_options_out_of_bounds_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="group rule 'header'"):
        strategy(**options)
