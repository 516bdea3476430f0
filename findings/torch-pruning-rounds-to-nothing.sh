#!/usr/bin/env bash
# Guess: Torch-Pruning with `round_to=8` leaves of each layer the multiple of 8 that is nearest to the share asked for, as its
# documentation says, and 8 channels where that would be none: the more is asked for, the smaller the network.
# What happens: it rounds down, so that 30 % of 32 channels cost half of them; and where it comes to none, the layer is left
# whole. Asked for 90 %, a network of 32 and 48 channels is not pruned at all, without a word.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet torch==2.13.0 torch-pruning==1.6.1 numpy==2.4.6
cat > try.py <<'PYTHON'
from importlib.metadata import version

import torch
import torch_pruning
from torch import nn


def widths(ratio: float) -> tuple[int, int]:
    """The channels left of a network of 32 and 48."""
    network = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 48, 3), nn.ReLU(), nn.Conv2d(48, 10, 1))
    pruner = torch_pruning.pruner.MagnitudePruner(
        network,
        torch.zeros(1, 3, 8, 8),
        importance=torch_pruning.importance.MagnitudeImportance(),
        pruning_ratio=ratio,
        round_to=8,
        ignored_layers=[network[4]],
    )
    pruner.step()
    return network[0].out_channels, network[2].out_channels


print("torch", torch.__version__, "torch-pruning", version("torch-pruning"))
seen = {ratio: widths(ratio) for ratio in (0.3, 0.5, 0.7, 0.9)}
for ratio, left in seen.items():
    exact = [round(width * (1 - ratio), 1) for width in (32, 48)]
    print(f"pruning_ratio {ratio}: 32 and 48 channels become {left}; without rounding {exact}")
assert seen == {0.3: (16, 32), 0.5: (16, 24), 0.7: (8, 8), 0.9: (32, 48)}
PYTHON
venv/bin/python try.py
# Seen: {0.3: (16, 32), 0.5: (16, 24), 0.7: (8, 8), 0.9: (32, 48)}
