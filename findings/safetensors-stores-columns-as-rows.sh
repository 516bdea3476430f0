#!/usr/bin/env bash
# Guess: safetensors.numpy.save stores an array whose rows do not lie one after the other, such as a transposed weight or
# what scikit-learn's solvers return, as NumPy's own save does; or it refuses it, as safetensors.torch.save does.
# What happens: version 0.7.0 stores its values. 0.8.0 writes the memory as it lies and the shape beside it: the file is valid
# and holds the same numbers in other places. Nothing
# is said on saving or loading.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet numpy==2.4.6
cat > try.py <<'PYTHON'
from importlib.metadata import version

import numpy as np
from safetensors.numpy import load, save

WEIGHT = np.arange(6, dtype=np.float32).reshape(2, 3)
arrays = {"as it is": WEIGHT, "transposed": WEIGHT.T, "columns first": np.asfortranarray(WEIGHT)}
read = {name: load(save({"weight": array}))["weight"] for name, array in arrays.items()}
print("safetensors", version("safetensors"))
for name, array in arrays.items():
    print(f"{name}: {array.tolist()} is read as {read[name].tolist()}")
same = {name: bool((array == read[name]).all()) for name, array in arrays.items()}
is_old = version("safetensors") == "0.7.0"
assert same == {"as it is": True, "transposed": is_old, "columns first": is_old}, same
PYTHON
for version in 0.7.0 0.8.0; do
    venv/bin/pip install --quiet "safetensors==$version"
    venv/bin/python try.py
done
# Seen with 0.8.0: columns first: [[0, 1, 2], [3, 4, 5]] is read as [[0, 3, 1], [4, 2, 5]]
