#!/usr/bin/env bash
# Guess: xarray reads from a Zarr store what zarr itself reads from it: a counter that stood at 0 is 0.
# What happens: in stores of Zarr's second format xarray takes the fill value, by default 0, for a mark of what is missing:
# every zero that was measured is NaN, whole numbers are floats, and the mean of 0, 5, 0, 5 is 5 and not 2.5. The same rows in
# the third format keep their zeros, as does `fill_value=None` or `mask_and_scale=False`.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet zarr==3.1.6 xarray==2026.9.0 numpy==2.4.6
cat > try.py <<'PYTHON'
import warnings

import numpy as np
import xarray
import zarr

COUNTS = np.array([0, 5, 0, 5], "int16")


def stored(kind: int, **settings: object) -> str:
    name = f"{kind}-{len(settings)}.zarr"
    dimensions = {"dimension_names": ["time"]} if kind == 3 else {"attributes": {"_ARRAY_DIMENSIONS": ["time"]}}
    group = zarr.open_group(name, mode="w", zarr_format=kind)
    group.create_array("count", shape=COUNTS.shape, dtype=COUNTS.dtype, **dimensions, **settings)[:] = COUNTS
    assert np.array_equal(zarr.open_group(name, mode="r")["count"][:], COUNTS)
    return name


def mean(name: str, **settings: bool) -> float:
    counts = xarray.open_zarr(name, consolidated=False, **settings)["count"]
    print(name, settings, counts.values, "mean", float(counts.mean()))
    return float(counts.mean())


warnings.simplefilter("ignore")
print("zarr", zarr.__version__, "xarray", xarray.__version__)
second, third, unfilled = stored(2), stored(3), stored(2, fill_value=None)
assert mean(second) == 5
assert mean(second, mask_and_scale=False) == mean(third) == mean(unfilled) == 2.5
PYTHON
venv/bin/python try.py
# Seen: 2-0.zarr {} [nan  5. nan  5.] mean 5.0
