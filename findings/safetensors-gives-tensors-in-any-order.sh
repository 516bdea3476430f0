#!/usr/bin/env bash
# Guess: safetensors gives the tensors back in the order in which they were stored, as torch.load, NumPy's npz and JSON do, so
# that `zip(names, load(file).values())` fits, which is how lists of arrays go into a model in many a federation.
# What happens: `load_file` sorts names as text, `10` before `2`, and `load` has another order at each call. Of layers of
# equal shapes each takes the weights of another one, and nothing is said. Only names are safe.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet safetensors==0.8.0 numpy==2.4.6
cat > try.py <<'PYTHON'
from importlib.metadata import version

import numpy as np
from safetensors.numpy import load, load_file, save, save_file

NAMES = [f"layer{number}.weight" for number in range(12)]
weights = {name: np.full(2, number, np.float32) for number, name in enumerate(NAMES)}
save_file(weights, "model.safetensors")
from_file = [int(weight[0]) for weight in load_file("model.safetensors").values()]
from_bytes = [[int(weight[0]) for weight in load(save(weights)).values()] for _ in range(5)]
np.savez("model.npz", **weights)
with np.load("model.npz") as arrays:
    from_numpy = [int(weight[0]) for weight in arrays.values()]
print("safetensors", version("safetensors"))
print("npz      ", from_numpy)
print("load_file", from_file)
print("load     ", *from_bytes, sep="\n    ")
assert from_numpy == list(range(12))
assert from_file == [0, 1, 10, 11, 2, 3, 4, 5, 6, 7, 8, 9]
assert len({tuple(order) for order in from_bytes}) > 1
PYTHON
venv/bin/python try.py
# Seen: load_file [0, 1, 10, 11, 2, 3, 4, 5, 6, 7, 8, 9]
