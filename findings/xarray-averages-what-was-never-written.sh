#!/usr/bin/env bash
# Guess: the two readers of NetCDF in Python agree which values are missing: hours that a sensor never wrote while another
# one made the file longer, and values beyond the `valid_min` and `valid_max` of the file's own conventions.
# What happens: netCDF4 masks both. xarray, which reads by the same library, shows 9.97e36 for floats and -32767 for short
# integers where nothing was written, and counts values beyond the bounds: the mean humidity of 40 and 41 is 5e36. netCDF4, in
# turn, masks 255 of bytes that were written, as that is what it fills with: a saturated sensor is a missing one.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet netCDF4==1.7.5.1.post1 xarray==2026.9.0 numpy==2.4.6
cat > try.py <<'PYTHON'
import netCDF4
import numpy as np
import xarray

WRITTEN = {"temperature": ("f4", [20, 21, 22, 23]), "humidity": ("f4", [40, 41]), "count": ("i2", [1, 2]),
           "light": ("u1", [7, 255, 9, 255]), "bounded": ("f4", [1, 20, -3, 5])}  # fmt: skip
with netCDF4.Dataset("log.nc", "w") as file:
    file.createDimension("time", None)
    for name, (kind, values) in WRITTEN.items():
        variable = file.createVariable(name, kind, ("time",))
        if name == "bounded":
            variable.valid_min, variable.valid_max = np.float32(0), np.float32(10)
        variable[: len(values)] = values
with netCDF4.Dataset("log.nc") as file:
    by_netcdf4 = {name: file[name][:].tolist() for name in WRITTEN}
by_xarray = {name: xarray.open_dataset("log.nc")[name].values.tolist() for name in WRITTEN}
print("netCDF4", netCDF4.__version__, "xarray", xarray.__version__)
for name in WRITTEN:
    print(f"{name:11} netCDF4 {by_netcdf4[name]}, xarray {by_xarray[name]}")
print("mean humidity by xarray:", float(xarray.open_dataset("log.nc").humidity.mean()))
assert by_netcdf4["temperature"] == by_xarray["temperature"] == [20, 21, 22, 23]
assert by_netcdf4["humidity"] == [40, 41, None, None] and min(by_xarray["humidity"][2:]) > 9e36
assert by_netcdf4["count"] == [1, 2, None, None] and by_xarray["count"] == [1, 2, -32767, -32767]
assert by_netcdf4["bounded"] == [1, None, None, 5] and by_xarray["bounded"] == [1, 20, -3, 5]
assert by_netcdf4["light"] == [7, None, 9, None] and by_xarray["light"] == [7, 255, 9, 255]
PYTHON
venv/bin/python try.py
# Seen: humidity netCDF4 [40.0, 41.0, None, None], xarray [40.0, 41.0, 9.969209968386869e+36, 9.969209968386869e+36]
