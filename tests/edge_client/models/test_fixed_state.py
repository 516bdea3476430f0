"""What a network holds besides its weights: found by two builds, sent once, or refused by name."""

import functools
import logging
import math
import threading
import types

import numpy as np
import pytest
import torch
from torch import nn

from edge_client.models import fixed_state
from edge_client.models.attributes import attributes_of, differing_places, users_parts
from edge_client.models.build import build_blank, build_model
from schemas.errors import ConfigError, PeerError
from schemas.values import ModelSpec
from tests.other_networks import NAME, Tied, Waves


def spec(network: str) -> ModelSpec:
    return ModelSpec(name=f"{NAME}:{network}", input_shape=(1, 4, 4), num_classes=3)


@pytest.mark.parametrize(
    ("network", "names"),
    [
        ("Ordered", {"order"}),
        ("Hidden", {"order"}),
        ("Waves", {"waves"}),
        ("Switched", {"on"}),
        ("Complex", {"turn"}),
        ("SelfSeeded", {"order"}),
        ("Positions", set()),
        ("Tied", set()),
        ("Viewed", set()),
        ("weight_norm", set()),
    ],
)
@pytest.mark.parametrize("seed", [0, 1, 0x5EED])
def test_what_a_factory_draws_besides_its_weights_is_found(network: str, names: set[str], seed: int) -> None:
    module = build_model(spec(network), seed=seed)
    drawn = fixed_state.drawn_state(spec(network), module)
    assert drawn.keys() == names
    other = build_blank(spec(network))
    fixed_state.fill_fixed(other, drawn)
    mine, theirs = fixed_state.fixed_tensors(module), fixed_state.fixed_tensors(other)
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


@pytest.mark.parametrize(
    ("network", "named"),
    [
        ("Attribute", "'order'"),
        ("InList", "'tables[0]['order']'"),
        ("InClosure", "'arranged.order'"),
        ("AsArray", "'places'"),
        ("AsNumber", "'shift'"),
        # Memory that nothing was drawn into may hold the numbers of an earlier network.
        ("Unlisted", "'layers[0]."),
        ("Deciding", "('1.bias', '1.weight', '3.weight')"),
    ],
)
def test_drawn_state_that_cannot_travel_is_refused_by_name(network: str, named: str) -> None:
    with pytest.raises(ConfigError) as refused:
        fixed_state.drawn_state(spec(network), build_model(spec(network)))
    assert named in str(refused.value)
    assert str(refused.value).startswith(f"'{NAME}:{network}'")


def test_a_trained_complex_parameter_is_refused() -> None:
    network = spec("ComplexWeight")
    with pytest.raises(ConfigError, match=r"'factor' is complex, and no complex parameter is averaged"):
        fixed_state.drawn_state(network, build_model(network))


@pytest.mark.parametrize("network", ["Ordered", "Hidden", "Waves", "Switched"])
def test_a_device_refuses_a_task_without_what_its_network_draws(network: str) -> None:
    fixed_state.check_given(spec(network), fixed_state.drawn_state(spec(network), build_model(spec(network))))
    with pytest.raises(PeerError, match=r"the server did not send '.*', which '.*' draws when it is built"):
        fixed_state.check_given(spec(network), ())


def test_given_state_must_be_the_networks_own() -> None:
    module = Waves((1, 4, 4), 3)
    with pytest.raises(PeerError, match=r"'waves' \(3,\) is not a fixed state of Waves"):
        fixed_state.fill_fixed(module, {"waves": np.zeros(3, np.float32)})
    with pytest.raises(PeerError, match=r"'out.bias' \(3,\) is not a fixed state of Waves"):
        fixed_state.fill_fixed(module, {"out.bias": np.zeros(3, np.float32)})


def test_builds_are_repeatable_from_their_seed_and_leave_all_generators_alone() -> None:
    np.random.seed(7)
    torch.manual_seed(7)
    expected = np.random.rand(), torch.rand(())
    np.random.seed(7)
    torch.manual_seed(7)
    first, again, other = (build_model(spec("Switched"), seed=seed) for seed in (3, 3, 4))
    assert torch.equal(first.on, again.on)
    assert not torch.equal(first.on, other.on)
    assert (np.random.rand(), torch.rand(())) == expected


def test_a_weight_of_two_layers_counts_by_its_first_name() -> None:
    sent = fixed_state.sent_tensors(Tied((1, 4, 4), 3))
    assert sent.keys() - fixed_state.distinct(sent).keys() == {"b.weight"}


def test_a_module_with_a_state_of_its_own_kind_has_arrays_all_the_same() -> None:
    class Stated(nn.Linear):
        def get_extra_state(self) -> object:
            return {"version": 1}

    assert fixed_state.sent_tensors(Stated(2, 2)).keys() == {"weight", "bias"}


class Bearing(nn.Module):
    """Has all kinds of attributes, as real networks do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.logger, self.functions = logging.getLogger("bearing"), nn.functional
        self.act, self.partial = torch.relu, functools.partial(torch.add, alpha=2)
        self.lock, self.kind, self.tied = threading.Lock(), nn.Linear, [self.layer, self.layer.weight]
        self.settings = types.SimpleNamespace(width=3, scales=[1.0, math.nan], names={"b", "a"})
        self.callable = Scaled()
        self.me = [self]


class Scaled:
    scale = 1.0

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * self.scale


def test_attributes_are_numbers_and_texts_in_whatever_holds_them() -> None:
    one, other = Bearing(), Bearing()
    logging.getLogger("bearing").setLevel(logging.INFO)
    found = [attributes_of(each, users_parts(each)) for each in (one, other)]
    assert differing_places(*found) == []
    assert {key: value for key, value in found[0].items() if "(length)" not in key and value == value} == {
        "settings.width": 3,
        "settings.scales[0]": 1.0,
        "settings.names[0]": "a",
        "settings.names[1]": "b",
        "callable.calls": 0,
    }
    other.callable(torch.ones(2))
    other.settings.scales.append(2.0)
    changed = differing_places(found[0], attributes_of(other, users_parts(other)))
    assert changed == ["settings.scales (length)", "callable.calls", "settings.scales[2]"]
