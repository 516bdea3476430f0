"""Evaluation mode, and what layers keep in it."""

import copy

import torch
from torch import Tensor, nn

from edge_client.models.modes import evaluating


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
