"""Layers that torch completes or recomputes are built, or refused; and what evaluation mode keeps."""

import copy

import pytest
import torch
from torch import Tensor, nn

from edge_client.models.build import build_blank, build_model
from edge_client.models.modes import evaluating
from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.pruning.surgery import arrays_of, load_arrays
from schemas.errors import ConfigError
from schemas.values import ModelSpec
from tests.other_networks import NAME

SHAPE = (1, 4, 4)


def spec(name: str) -> ModelSpec:
    return ModelSpec(name=f"{NAME}:{name}", input_shape=SHAPE, num_classes=3)


@pytest.mark.parametrize("network", ["lazy", "weight_norm", "spectral_norm"])
def test_it_is_built_copied_and_filled_like_any_other(network: str) -> None:
    module, blank = build_model(spec(network), seed=1).eval(), build_blank(spec(network)).eval()
    load_arrays(blank, arrays_of(module))
    inputs = torch.linspace(-1, 1, 32).reshape(2, *SHAPE)
    assert torch.equal(blank(inputs), module(inputs))
    assert torch.equal(copy.deepcopy(module)(inputs), module(inputs))
    assert trace_channels(module, SHAPE).parameters.keys() == arrays_of(module).keys()


def test_lazy_layers_have_their_shapes_and_repeatable_weights() -> None:
    first, again = (build_model(spec("lazy"), seed=3) for _ in range(2))
    assert type(first[1]) is nn.Linear
    assert first[1].weight.shape == (8, 16)
    assert torch.equal(first[1].weight, again[1].weight)


@pytest.mark.parametrize("kind", ["weight_norm", "spectral_norm"])
def test_hooks_of_the_older_kind_are_refused_with_what_takes_their_place(kind: str) -> None:
    with pytest.raises(ConfigError) as refused:
        build_model(spec(f"old_{kind}"))
    assert f"torch.nn.utils.{kind} of layer '0' recomputes its weight" in str(refused.value)
    assert str(refused.value).endswith(f"use torch.nn.utils.parametrizations.{kind}")


def test_a_lazy_layer_without_a_shape_is_refused() -> None:
    with pytest.raises(ConfigError, match="has a lazy layer that its forward method does not use"):
        build_model(spec("unused_lazy"))
    with pytest.raises(ConfigError, match=r"its lazy layers get no shape from inputs \(1, 4, 4\): "):
        build_model(spec("wrong_lazy"))


class Keeping(nn.Module):
    """Keeps in evaluation what it computes of its weight, until it is told to train."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.kept = nn.Parameter(torch.ones(2)), {}

    def train(self, mode: bool = True) -> nn.Module:
        if mode:
            self.kept = {}
        return super().train(mode)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            return x * self.weight.exp()
        return x * self.kept.setdefault("weight", self.weight.exp())


def test_what_a_layer_keeps_in_evaluation_is_never_that_of_other_weights() -> None:
    module = nn.Sequential(Keeping(), nn.Dropout()).train()
    x = torch.ones(1, 2)
    with evaluating(module):
        before = module(x)
        assert not module[1].training
    assert all(part.training for part in module.modules())
    copy.deepcopy(module)
    with torch.no_grad():
        module[0].weight.add_(1)
    with evaluating(module):
        torch.testing.assert_close(module(x), before * torch.e)


def test_each_part_gets_its_own_mode_back() -> None:
    module = nn.Sequential(nn.BatchNorm1d(2).eval(), nn.Dropout())
    with evaluating(module):
        assert not any(part.training for part in module.modules())
    assert [part.training for part in module.modules()] == [True, False, True]
