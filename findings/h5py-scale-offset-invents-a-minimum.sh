#!/usr/bin/env bash
# Guess: the scale-offset filter of HDF5, by which h5py keeps floats to a number of decimals, keeps NaN, or refuses it; and
# rows that were never written are the fill value.
# What happens: NaN becomes the least value of its chunk, so that a sensor that failed shows the coldest temperature measured,
# and so do rows that were never written if the fill value is NaN. Infinity and 1e30 are kept, with the others beside them.
# Whole numbers that are stored in fewer bits than they need wrap: 300 in 4 bits is -4. Nothing is said.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet h5py==3.16.0 numpy==2.4.6
cat > try.py <<'PYTHON'
import math

import h5py
import numpy as np


def read_back(values: list[float], kind: str = "f4", rows: int | None = None, **settings: float) -> list[float]:
    """What is read of values that were written to the first rows of a data set."""
    size = (rows or len(values),)
    with h5py.File("log.h5", "w") as file:
        file.create_dataset("log", size, kind, chunks=size, **settings)[: len(values)] = np.array(values, kind)
    with h5py.File("log.h5") as file:
        return file["log"][:].tolist()


print("h5py", h5py.__version__, "HDF5", h5py.version.hdf5_version)
failed = read_back([20.5, math.nan, 19.25, 21.75], scaleoffset=3)
infinite = read_back([20.5, math.inf, 19.25, 1e30], scaleoffset=3)
short = read_back([20.5, 19.25], rows=4, scaleoffset=3, fillvalue=math.nan)
plain = read_back([20.5, 19.25], rows=4, fillvalue=math.nan)
whole = read_back([1, 300, -7], "i2", scaleoffset=4)
print("20.5, nan, 19.25, 21.75:", failed)
print("two rows of four written:", short, "without the filter:", plain)
print("1, 300, -7 in 4 bits:", whole)
assert failed == [20.5, 19.25, 19.25, 21.75]
assert np.allclose(infinite, [20.5, math.inf, 19.25, 1e30])
assert short == [20.5, 19.25, 19.25, 19.25] and np.isnan(plain[2:]).all()
assert whole == [1, -4, -7]
PYTHON
venv/bin/python try.py
# Seen: 20.5, nan, 19.25, 21.75: [20.5, 19.25, 19.25, 21.75]
