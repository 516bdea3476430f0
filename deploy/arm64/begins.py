"""Checks that a library imports and computes on this processor: begins.py torch|onnxruntime|numpy."""

import sys

name = sys.argv[1]
if name == "torch":
    import torch
    from torch import nn

    net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 6 * 6, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    nn.functional.cross_entropy(net(torch.ones(4, 1, 8, 8)), torch.tensor([0, 1, 2, 3])).backward()
    optimizer.step()
    print(f"torch {torch.__version__} has trained a step")
elif name == "onnxruntime":
    import onnxruntime

    print(f"onnxruntime {onnxruntime.__version__} begins")
else:
    import numpy as np

    print(f"numpy {np.__version__} multiplies: {float((np.ones((64, 64)) @ np.ones((64, 64))).sum())}")
