#!/usr/bin/env bash
# Guess: numpy averages an array of bfloat16, as safetensors and ml_dtypes give it, in a wider type and rounds the answer, as it
# does with float16, so that the mean of 10,000 readings of about 20 degrees is 20; small integers are added up in wide ones.
# What happens: the sum itself is a bfloat16, which stops to grow at 256 times what is added: the mean of 10,000 ones is
# 0.0256, and that of the readings 0.82. Sums of int4 wrap: the mean of three sevens is 1. Nothing is said. With
# `dtype=np.float32` in the call the mean is right.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet ml_dtypes==0.6.0 numpy==2.4.6
cat > try.py <<'PYTHON'
import ml_dtypes
import numpy as np

rng = np.random.default_rng(0)
READINGS = 20 + rng.normal(size=10_000)
print("ml_dtypes", ml_dtypes.__version__, "numpy", np.__version__)
seen = {}
for kind in (np.float16, ml_dtypes.bfloat16):
    ones, readings = np.ones(10_000, kind), READINGS.astype(kind)
    seen[kind] = [float(value) for value in (ones.mean(), readings.mean(), readings.mean(dtype=np.float32))]
    print(f"{np.dtype(kind)}: ones {seen[kind][0]:.4f}, readings {seen[kind][1]:.2f}; by a sum of float32 {seen[kind][2]:.2f}")
sevens = np.array([7, 7, 7])
means = sevens.astype(np.int8).mean(), sevens.astype(ml_dtypes.int4).mean()
print("three sevens: int8", means[0], "int4", means[1])
assert seen[np.float16][0] == 1 and abs(seen[np.float16][1] - 20) < 0.1
wrong = seen[ml_dtypes.bfloat16]
assert wrong[0] < 0.03 and wrong[1] < 1 and abs(wrong[2] - 20) < 0.1
assert float(means[0]) == 7 and float(means[1]) == 1
PYTHON
venv/bin/python try.py
# Seen: bfloat16: ones 0.0256, readings 0.82; by a sum of float32 20.01
