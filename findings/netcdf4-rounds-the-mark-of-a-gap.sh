#!/usr/bin/env bash
# Guess: netCDF4 with `significant_digits`, which rounds readings so that they pack better, leaves marks of gaps alone, those of
# `missing_value` as those of `_FillValue`, and infinity too.
# What happens: only `_FillValue` is spared. A mark of -9999 that `missing_value` names is rounded like a reading, to -9996 or
# -10000, is the mark no longer and not masked: the mean of temperatures around 20 with a tenth missing is -982. And an infinite
# reading is a zero by GranularBitRound, and not a number by BitGroom. Nothing is said.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet netCDF4==1.7.5.1.post1 numpy==2.4.6
cat > try.py <<'PYTHON'
import netCDF4
import numpy as np

GAP = np.float32(-9999)
readings = np.random.default_rng(0).normal(20, 1, 1000).astype(np.float32)
readings[::10] = GAP
MODES = {"none": {}, "BitGroom": {"significant_digits": 3}, "GranularBitRound": {"significant_digits": 3}}
MODES["BitRound"] = {"significant_digits": 9}  # bits


def read(mode: str, given: np.ndarray, marked_by: str) -> np.ma.MaskedArray:
    """What is read of a file of its own, gaps masked as netCDF4 does by itself."""
    settings = {} if mode == "none" else {"quantize_mode": mode, **MODES[mode]}
    if marked_by == "_FillValue":
        settings["fill_value"] = GAP
    with netCDF4.Dataset("readings.nc", "w") as file:
        file.createDimension("time", len(given))
        variable = file.createVariable("temperature", "f4", ("time",), zlib=True, **settings)
        if marked_by == "missing_value":
            variable.missing_value = GAP
        variable[:] = given
    with netCDF4.Dataset("readings.nc") as file:
        return file["temperature"][:]


print("netCDF4", netCDF4.__version__, "netCDF", netCDF4.__netcdf4libversion__)
for mode in MODES:
    seen = {by: read(mode, readings, by) for by in ("_FillValue", "missing_value")}
    infinite = float(read(mode, np.array([20, np.inf], np.float32), "_FillValue")[1])
    means = {by: round(float(found.mean()), 2) for by, found in seen.items()}
    print(f"{mode}: mean by mark {means}, least {float(seen['missing_value'].min())}, infinity is {infinite}")
    assert seen["_FillValue"].mask.sum() == 100 and abs(means["_FillValue"] - 20) < 0.2
    if mode == "none":
        assert seen["missing_value"].mask.sum() == 100
    else:
        assert not np.ma.is_masked(seen["missing_value"]) and means["missing_value"] < -900
    assert np.array_equal(infinite, {"BitGroom": np.nan, "GranularBitRound": 0}.get(mode, np.inf), equal_nan=True)
PYTHON
venv/bin/python try.py
# Seen: GranularBitRound: mean by mark {_FillValue: 19.96, missing_value: -982.03}, least -10000.0, infinity is -0.0
