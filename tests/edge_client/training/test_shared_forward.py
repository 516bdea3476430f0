"""Sub-models that share layers compute what they compute alone, to the bit."""

from collections.abc import Hashable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from edge_client.data.dataset import make_labelled_data
from edge_client.models.build import build_model
from edge_client.models.registry import entry
from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.pruning.channel_selection import group_ratios
from edge_client.pruning.index_sets import cut_axes
from edge_client.pruning.surgery import compact
from edge_client.training.evaluation import evaluate
from edge_client.training.shared_forward import Cut, evaluate_sub_models, prepare_modules, shared_outputs
from schemas.submodel import SubModelSpec
from schemas.values import ModelSpec

RATIOS = (0.7, 0.3)
SHAPE = (1, 16, 16)


def networks(name: str, shape: tuple[int, ...] = SHAPE) -> tuple[list[nn.Module], list[Cut]]:
    """A network and sub-models of it with random channels, with the indices that these are cut at."""
    whole = build_model(ModelSpec(name=name, input_shape=shape, num_classes=10), seed=1).eval()
    channel_map = trace_channels(whole, shape)
    rng, modules, cuts = np.random.default_rng(0), [whole], list[Cut]()
    for ratio in RATIOS:
        kept = {}
        for group, pruned in group_ratios(entry(name), ratio, channel_map).items():
            channels = channel_map.groups[group].channels
            count = max(1, channels - int(channels * pruned))
            kept[group] = tuple(sorted(rng.permutation(channels)[:count].tolist()))
        spec = SubModelSpec(kept=kept)
        modules.append(compact(whole, spec, channel_map))
        cuts.append({name: cut_axes(layout, spec) for name, layout in channel_map.parameters.items()})
    return modules, cuts


def batches(*counts: int, shape: tuple[int, ...] = SHAPE) -> list[Tensor]:
    return [torch.from_numpy(np.random.default_rng(n).random((n, *shape), np.float32)) for n in counts]


def shared(modules: list[nn.Module], cuts: list[Cut], parts: list[Tensor]) -> list[Tensor] | None:
    with prepare_modules(modules, parts[0]):
        return shared_outputs(modules, cuts, parts)


def alone(modules: list[nn.Module], parts: list[Tensor]) -> list[Tensor]:
    with prepare_modules(modules, parts[0]):
        return [torch.cat([module(part) for part in parts]) for module in modules]


def test_outputs_are_those_of_separate_passes() -> None:
    modules, cuts = networks("two-nn")
    parts = batches(64, 64, 64, 7)
    found = shared(modules, cuts, parts)
    assert found is not None
    for ours, separate in zip(found, alone(modules, parts), strict=True):
        assert torch.equal(ours, separate)


class Convolutions(TorchDispatchMode):
    """Counts the convolutions that are computed."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += "conv" in str(func)
        return func(*args, **(kwargs or {}))


def test_the_convolutions_of_sub_models_are_those_of_the_whole_network() -> None:
    modules, cuts = networks("two-nn")
    with Convolutions() as computed:
        shared(modules, cuts, batches(64, 64, 64))
    # Two on the examples from which it learns, two per batch, two in each of three passes alone.
    assert computed.count == 2 + 3 * 2 + 3 * 2


def test_results_for_the_same_shapes_are_compared_once() -> None:
    modules, cuts = networks("two-nn")
    compared: set[Hashable] = set()
    parts = batches(64, 64, 64)
    for count in (2 + 3 * 2 + 3 * 2, 2 + 3 * 2):
        with Convolutions() as computed, prepare_modules(modules, parts[0]):
            found = shared_outputs(modules, cuts, parts, compared)
        assert found is not None
        assert computed.count == count


class Mutating(nn.Module):
    """Changes a common layer's output in place after it was used."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.factor = factor
        with torch.no_grad():
            self.layer.weight.copy_(torch.eye(4))
            self.layer.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        out = self.layer(x)
        out.view(-1).mul_(self.factor)
        return out


@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_networks_that_change_a_common_result_share_nothing(factor: float) -> None:
    modules: list[nn.Module] = [Mutating(factor), Mutating(factor)]
    assert shared(modules, [{}], batches(8, 8, shape=(4,))) is None


class Reading(nn.Module):
    """Reads numbers of a tensor in a way that torch does not see."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.from_numpy(np.array(x.detach().numpy() * 2.0))


def test_linear_layers_are_not_shared_in_part() -> None:
    assert shared(*networks("mlp"), batches(64, 64)) is None


def test_networks_without_common_layers_share_nothing() -> None:
    assert shared([Reading(), Reading()], [{}], batches(8, 8)) is None


@pytest.mark.parametrize(("name", "shape"), [("two-nn", SHAPE), ("cnn", (3, 16, 16))])
def test_evaluations_are_equal(name: str, shape: tuple[int, ...]) -> None:
    modules, cuts = networks(name, shape)
    rng = np.random.default_rng(0)
    data = make_labelled_data(rng.integers(0, 256, (300, *shape)).astype(np.uint8), rng.integers(0, 10, 300))
    together = evaluate_sub_models(modules, cuts, data, batch_size=64)
    assert together == [evaluate(module, data, batch_size=64) for module in modules]
