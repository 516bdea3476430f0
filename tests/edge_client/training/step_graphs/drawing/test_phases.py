"""A convolution and the pooling of its outputs in phases, beside torch's own."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from edge_client.training.step_graphs.drawing import drawn_pools
from edge_client.training.step_graphs.drawing.drawn_pools import DrawnPools, PooledPhases

POOLINGS: dict[str, Mapping[str, Any]] = {
    "halves": {"kernel_size": 2},
    "overlapping": {"kernel_size": 3, "stride": 2, "padding": 1},
    "columns only": {"kernel_size": (1, 2)},
    "thirds": {"kernel_size": 3},
    "every second element": {"kernel_size": 1, "stride": 2},
    "far apart": {"kernel_size": 2, "stride": 2, "padding": 1, "dilation": 2},
    "each place": {"kernel_size": 3, "stride": 1, "padding": 1},
}
SIDE, KERNEL = 12, 5


@pytest.fixture
def in_phases(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of the phases that were pooled."""
    shapes: list[tuple[int, ...]] = []
    apply = PooledPhases.apply

    def noted(maps: Tensor, *options: Any) -> Any:
        shapes.append(tuple(maps.shape))
        return apply(maps, *options)

    monkeypatch.setattr(PooledPhases, "apply", noted)
    return shapes


def whole_numbers(seed: int, *shape: int) -> Tensor:
    """Numbers whose sums of products have no rounding, and many ties."""
    random = np.random.default_rng(seed)
    return torch.from_numpy(random.integers(-1, 2, shape).astype(np.float64)).requires_grad_()


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("pooling", POOLINGS.values(), ids=POOLINGS)
def test_numbers_and_gradients_are_those_of_torch(
    pooling: Mapping[str, Any], bias: bool, in_phases: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawn_pools, "MAX_MULTIPLICATIONS", 4)
    given = [whole_numbers(1, 2, 3, SIDE, SIDE), whole_numbers(2, 4, 3, KERNEL, KERNEL)]
    given += [whole_numbers(3, 4)] if bias else []

    def outputs() -> Tensor:
        return functional.max_pool2d(functional.conv2d(*given, padding=2), **pooling)

    expected = outputs()
    factors = torch.arange(expected.numel(), dtype=torch.float64).reshape(expected.shape)
    with DrawnPools():
        found = outputs()
    assert len(in_phases) == 1
    assert torch.equal(found, expected)
    gradients = [torch.autograd.grad((factors * result).sum(), given) for result in (found, expected)]
    for ours, theirs in zip(*gradients, strict=True):
        assert torch.equal(ours, theirs)


CONVOLVED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "outputs smaller than inputs": lambda x, w: functional.conv2d(x, w),
    "stride": lambda x, w: functional.conv2d(x, w, stride=2, padding=2),
    "dilation": lambda x, w: functional.conv2d(x, w, dilation=2, padding=4),
    "padding with a name": lambda x, w: functional.conv2d(x, w, padding="same"),
    "groups": lambda x, w: functional.conv2d(x, w[:, :1], groups=3, padding=2),
    "one example": lambda x, w: functional.conv2d(x[0], w, padding=2),
    "odd sides": lambda x, w: functional.conv2d(x[..., :-1], w, padding=2),
    "small kernel": lambda x, w: functional.conv2d(x, w[..., 1:4, 1:4], padding=1),
    "many channels": lambda x, w: functional.conv2d(x.repeat(1, 8, 1, 1), w.repeat(12, 8, 1, 1), padding=2),
    "another operator between": lambda x, w: functional.conv2d(x, w, padding=2) + 1,
}


@pytest.mark.parametrize("convolved", CONVOLVED.values(), ids=CONVOLVED)
def test_other_convolutions_are_left_as_they_are(
    convolved: Callable[[Tensor, Tensor], Tensor], in_phases: list[tuple[int, ...]]
) -> None:
    x, weight = whole_numbers(1, 2, 3, SIDE, SIDE), whole_numbers(2, 6, 3, KERNEL, KERNEL)
    expected = functional.max_pool2d(convolved(x, weight), 2)
    with DrawnPools():
        found = functional.max_pool2d(convolved(x, weight), 2)
        functional.max_pool2d(functional.conv2d(x, weight, padding=2), 2, return_indices=True)
    assert in_phases == []
    assert torch.equal(found, expected)


def test_arguments_may_have_names(in_phases: list[tuple[int, ...]]) -> None:
    x, weight = whole_numbers(1, 2, 3, SIDE, SIDE), whole_numbers(2, 4, 3, KERNEL, KERNEL)
    expected = functional.conv2d(x, weight, padding=2)
    with DrawnPools():
        assert torch.equal(functional.conv2d(input=x, weight=weight, padding=2), expected)
        functional.max_pool2d(input=functional.conv2d(x, weight=weight, padding=2), kernel_size=2)
    assert in_phases == [(2, 16, SIDE // 2, SIDE // 2)]


def test_what_else_reads_the_outputs_has_them_whole() -> None:
    x, weight = whole_numbers(1, 2, 3, SIDE, SIDE), whole_numbers(2, 4, 3, KERNEL, KERNEL)
    found = []
    for mode in (DrawnPools(), torch.enable_grad()):
        with mode:
            maps = functional.conv2d(x, weight, padding=2)
            result = functional.max_pool2d(maps, 2).sum() + maps.square().sum()
        found.append(torch.autograd.grad(result, weight)[0])
    assert torch.equal(*found)


def test_a_step_keeps_booleans_of_what_was_pooled() -> None:
    kept: list[Tensor] = []
    x, weight = whole_numbers(1, 2, 3, SIDE, SIDE), whole_numbers(2, 4, 3, KERNEL, KERNEL)
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda array: kept.append(array) or array, lambda a: a)
    with DrawnPools(), hooks:
        found = functional.max_pool2d(nn.functional.conv2d(x, weight, padding=2), 2)
    assert found.requires_grad
    assert {array.dtype for array in kept if array.shape[2:] == found.shape[2:] and array.shape[1] != 12} == {
        torch.bool
    }
