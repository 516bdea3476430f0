#!/usr/bin/env bash
# Guess: FedLab's SerializationTool, by which its clients and servers exchange models, makes a model of one that answers as
# the other does.
# What happens: it carries parameters and no buffers. The running means and variances of batch normalisation stay what they
# were at the receiver, 0 and 1 at the server for ever: a classifier that is right on all of its rows answers by chance
# once it has gone through the tool. Nothing is said. A state dict carries them.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet torch==2.13.0 fedlab==1.3.0 numpy==2.4.6
cat > try.py <<'PYTHON'
from importlib.metadata import version

import torch
from fedlab.utils.serialization import SerializationTool
from torch import nn

torch.manual_seed(0)
labels = torch.randint(0, 2, (400,))
rows = torch.randn(400, 4) + 100 + 10 * labels[:, None]


def network() -> nn.Module:
    return nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2))


def accuracy(model: nn.Module) -> float:
    return float((model.eval()(rows).argmax(1) == labels).float().mean())


trained = network()
optimizer = torch.optim.SGD(trained.parameters(), 0.5)
for _ in range(100):
    optimizer.zero_grad()
    nn.functional.cross_entropy(trained(rows), labels).backward()
    optimizer.step()
by_tool, by_state = network(), network()
SerializationTool.deserialize_model(by_tool, SerializationTool.serialize_model(trained))
by_state.load_state_dict(trained.state_dict())
seen = {"trained": accuracy(trained), "state dict": accuracy(by_state), "SerializationTool": accuracy(by_tool)}
print("fedlab", version("fedlab"), "torch", torch.__version__)
print(seen, "running mean:", [round(float(model[0].running_mean[0])) for model in (trained, by_tool)])
assert seen["trained"] == seen["state dict"] > 0.98 and seen["SerializationTool"] < 0.6
assert all(torch.equal(*pair) for pair in zip(trained.parameters(), by_tool.parameters(), strict=True))
PYTHON
venv/bin/python try.py 2> /dev/null
# Seen: {trained: 1.0, state dict: 1.0, SerializationTool: 0.53} running mean: [105, 0]
