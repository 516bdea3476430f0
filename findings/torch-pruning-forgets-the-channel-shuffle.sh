#!/usr/bin/env bash
# Guess: Torch-Pruning follows channels to the next layer through a shuffle (view, transpose, reshape: ShuffleNet), or refuses
# it: if channels that are always zero are taken out, the network answers as before.
# What happens: it takes the numbers of the channels before the shuffle for those after it. The next layer loses the weights
# of channels that are used and keeps those of channels that are gone; all shapes fit, and nothing is said. Without the shuffle,
# or if the weights are taken out by the shuffled numbers, the answer is the same.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet torch==2.13.0 torch-pruning==1.6.1 numpy==2.4.6
cat > try.py <<'PYTHON'
from importlib.metadata import version

import torch
import torch_pruning
from torch import nn

DEAD = [0, 1, 4, 5]  # of 8 channels; whole pairs, so that the rest can be shuffled in two groups
PICTURE = torch.rand(1, 3, 4, 4, generator=torch.Generator().manual_seed(1))


class Network(nn.Module):
    def __init__(self, shuffles: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.shuffles = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 4, 1), shuffles
        with torch.no_grad():
            self.first.weight[DEAD], self.first.bias[DEAD] = 0, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(shuffled(self.first(x)) if self.shuffles else self.first(x))


def shuffled(x: torch.Tensor) -> torch.Tensor:
    """ShuffleNet's: of two groups of channels, one of each in turn."""
    count, channels, height, width = x.shape
    return x.view(count, 2, channels // 2, height, width).transpose(1, 2).reshape(count, channels, height, width)


def difference(network: Network, before: torch.Tensor) -> float:
    return float((network(PICTURE) - before).abs().max().detach())


print("torch", torch.__version__, "torch-pruning", version("torch-pruning"))
seen = {}
for shuffles in (False, True):
    network = Network(shuffles)
    before, weight = network(PICTURE), network.second.weight.detach().clone()
    graph = torch_pruning.DependencyGraph().build_dependency(network, PICTURE)
    graph.get_pruning_group(network.first, torch_pruning.prune_conv_out_channels, idxs=DEAD).prune()
    seen[shuffles] = difference(network, before)
order = shuffled(torch.arange(8).view(1, 8, 1, 1)).flatten().tolist()
with torch.no_grad():
    network.second.weight.copy_(weight[:, [place for place, channel in enumerate(order) if channel not in DEAD]])
by_hand = difference(network, before)
print(f"answers change by {seen[False]:.3f} without a shuffle, {seen[True]:.3f} with one, {by_hand:.3f} by shuffled numbers")
assert seen[False] < 1e-5 and by_hand < 1e-5 and seen[True] > 0.1
PYTHON
venv/bin/python try.py
# Seen: answers change by 0.000 without a shuffle, 0.389 with one, 0.000 by shuffled numbers
