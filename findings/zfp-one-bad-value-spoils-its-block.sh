#!/usr/bin/env bash
# Guess: zfp with a tolerance, its mode of fixed accuracy, keeps each value within the tolerance, and a value that is not a
# number is refused or kept.
# What happens: values are coded in blocks of 4 per axis with the block's largest exponent. NaN becomes -16, infinity takes
# its neighbours with it, and of the neighbours of a spike of 1e30 nothing is left but 0, with a tolerance of 0.001 and
# without a word. Without a tolerance all of them are kept.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet zfpy==1.0.1.post0 numpy==2.4.6
cat > try.py <<'PYTHON'
import math
from importlib.metadata import version

import numpy as np
import zfpy


def read_back(third: float, **settings: float) -> list[float]:
    """What is read of the values 1 to 8 if the third is another one."""
    values = np.arange(1.0, 9.0)
    values[2] = third
    return zfpy.decompress_numpy(zfpy.compress_numpy(values, **settings)).tolist()


print("zfpy", version("zfpy"))
BAD = (3.0, math.nan, math.inf, 1e30)
seen = {third: read_back(third, tolerance=0.001) for third in BAD}
for third, values in seen.items():
    print(f"third value {third:5}:", values)
    assert np.array_equal(read_back(third), [1, 2, third, *range(4, 9)], equal_nan=True)
    assert values[4:] == [5, 6, 7, 8]
assert np.allclose(seen[3.0], range(1, 9), atol=0.001)
assert seen[math.nan][:4] == [1, 2, -16, 4]
assert seen[math.inf][:4] == [1, -2, -2, -2]
assert np.allclose(seen[1e30][:4], [0, 0, 1e30, 0])
PYTHON
venv/bin/python try.py
# Seen: nan [1, 2, -16, 4, ...]; inf [1, -2, -2, -2, ...]; 1e30 [0, 0, 1e30, 0, ...]
