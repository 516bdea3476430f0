#!/usr/bin/env bash
# Guess: where asammdf lays the channels of a measurement (MF4) side by side, `to_dataframe` and `resample` give no value of a
# sensor before its first and after its last sample, as pandas leaves them empty.
# What happens: the first value is repeated back to the start of the file, and the last one to its end: a sensor that died in the
# first sixth of a drive, at 90 degrees, reads 90 to the end, and its mean over the drive, of what it measured 30, is 78. Nothing
# is said. `get` gives what was measured.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet asammdf==8.8.28 numpy==2.4.6 pandas==3.0.3
cat > try.py <<'PYTHON'
import asammdf
import numpy as np
import pandas as pd

times = np.arange(0, 100.0, 0.5)
short = (times >= 5) & (times <= 15)
SPEED, HEAT = np.full(times.size, 50.0), np.linspace(-30, 90, short.sum())
with asammdf.MDF() as written:
    written.append([asammdf.Signal(SPEED, times, name="speed")])
    written.append([asammdf.Signal(HEAT, times[short], name="heat")])
    written.save("drive.mf4", overwrite=True)
drive = asammdf.MDF("drive.mf4")
measured = drive.get("heat").samples
tables = {"to_dataframe": drive.to_dataframe(), "to_dataframe(raster=1)": drive.to_dataframe(raster=1)}
tables["resample"] = drive.resample(1).to_dataframe()
print("asammdf", asammdf.__version__)
print("measured:", measured.size, "values, mean", measured.mean())
for name, table in tables.items():
    heat = table["heat"]
    print(f"{name}: empty {heat.isna().sum()} of {heat.size}, first {heat.iloc[0]}, last {heat.iloc[-1]}, mean {heat.mean():.1f}")
    assert heat.notna().all() and (heat.iloc[0], heat.iloc[-1]) == (-30, 90) and 70 < heat.mean() < 90
by_pandas = pd.concat([pd.Series(SPEED, times), pd.Series(HEAT, times[short])], axis=1)[1]
print(f"pandas: empty {by_pandas.isna().sum()} of {by_pandas.size}, mean {by_pandas.mean():.1f}")
assert by_pandas.isna().sum() == (~short).sum() and abs(by_pandas.mean() - measured.mean()) < 0.1
PYTHON
venv/bin/python try.py
# Seen: measured: 21 values, mean 30.0; to_dataframe: empty 0 of 200, first -30.0, last 90.0, mean 77.7
