"""A traced step is translated as it is; the exporter traces it again only where it must replace something."""

from collections.abc import Callable
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, fx, nn
from torch.fx.experimental.proxy_tensor import make_fx

from edge_client.training.step_graphs.drawing import export
from edge_client.training.step_graphs.drawing.export import NotReady, ready_program
from edge_client.training.step_graphs.drawing.step import draw_step

SHAPE = (2, 4, 4)


class Scaled(nn.Module):
    """Multiplies by a constant, which is no weight and no buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.factors = torch.linspace(0.5, 2, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factors


def network(*, inplace: bool = False) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1),
        nn.BatchNorm2d(3),
        nn.ReLU(inplace=inplace),
        Scaled(),
        nn.Flatten(),
        nn.Linear(48, 2),
    )


def test_a_step_with_running_statistics_and_constants_is_traced_once() -> None:
    with patch.object(export, "TracedStep", side_effect=AssertionError("traced again")):
        assert draw_step(network(), SHAPE)


def test_a_network_that_changes_arrays_in_place_is_drawn() -> None:
    # The graph is compared with torch before it is returned.
    assert draw_step(network(inplace=True), SHAPE)


def traced(run: Callable[[Tensor], Tensor]) -> fx.GraphModule:
    return make_fx(run, tracing_mode="fake")(torch.ones(2, 3))


def _read_by_a_view(x: Tensor) -> Tensor:
    held = x.clone()
    view = held.view(-1)
    held.copy_(x + 1)
    return view * 2


def _changed_in_place(x: Tensor) -> Tensor:
    return (x + 1).mul_(2)


@pytest.mark.parametrize("run", [_read_by_a_view, _changed_in_place])
def test_a_step_whose_arrays_change_is_left_to_the_exporter(run: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(NotReady):
        ready_program(traced(lambda x: [run(x)]), {})  # type: ignore[arg-type, return-value]


def test_an_array_that_is_read_only_before_it_is_overwritten_has_two_names() -> None:
    def follow(x: Tensor) -> Tensor:
        held = x.clone()
        held.copy_(held * 0.5)
        return held

    program = ready_program(traced(lambda x: [follow(x)]), {})  # type: ignore[arg-type, return-value]
    given = torch.ones(2, 3)
    assert torch.equal(program.graph_module(given)[0], torch.full((2, 3), 0.5))
    assert torch.equal(given, torch.ones(2, 3))
