#!/usr/bin/env bash
# Guess: torch.func.functional_call computes with the given tensors and leaves the module as it was, also where one layer
# hangs in the module under two names.
# What happens: the given tensors stay in that layer after the call. Both names are swapped, one after the other, and the
# second one takes the tensor given to the first for the layer's own when it puts things back. One name is left alone.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet torch==2.13.0 numpy==2.4.6
venv/bin/python - <<'PYTHON'
import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self, shared: bool) -> None:
        super().__init__()
        self.first = nn.Linear(2, 2)
        if shared:
            self.last = self.first

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.first(x)


print("torch", torch.__version__)
kept = {}
for shared in (False, True):
    module = Encoder(shared)
    own = module.first.weight
    given = {name: torch.zeros_like(weight) for name, weight in module.named_parameters()}
    assert list(given) == ["first.weight", "first.bias"]
    torch.func.functional_call(module, given, (torch.ones(1, 2),))
    kept[shared] = module.first.weight is own
    print(f"layer under {1 + shared} name(s): its own weight is {'back' if kept[shared] else 'gone'}, "
          f"sum of its weight {float(module.first.weight.abs().sum()):.3f}")
assert kept == {False: True, True: False}, kept
print("as described: a layer under two names keeps the tensors of the call")
PYTHON
