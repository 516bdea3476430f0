#!/usr/bin/env bash
# Guess: the DataFrameClient of influxdb, the client of InfluxDB 1, which boards still run, writes the times of a table as they are,
# whatever the version of pandas that made the table, or refuses it.
# What happens: it takes the numbers behind the times for nanoseconds. pandas 3 holds most times in microseconds, so that
# readings of January 2026 are sent as of 21 January 1970, with every unit that can be asked for, and what is a second apart is a
# millisecond apart. With an index in nanoseconds, as pandas 2 had it by default, the lines have the right times.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet influxdb==5.3.2 pandas==3.1.1 numpy==2.4.6
cat > try.py <<'PYTHON'
from importlib.metadata import version
from unittest.mock import patch

import pandas as pd
from influxdb import DataFrameClient

FIRST = "2026-01-02T03:04:05Z"
PER_SECOND = {"s": 1, "ms": 1000, "u": 10**6, None: 10**9}


def sent(unit: str | None, resolution: str | None) -> list[pd.Timestamp]:
    """The times in the lines that are given to the server."""
    table = pd.DataFrame({"t": [20.5, 20.6]}, index=pd.date_range(FIRST, periods=2, freq="s"))
    if resolution:
        table.index = table.index.as_unit(resolution)
    client = DataFrameClient()
    with patch.object(DataFrameClient.__mro__[1], "write_points") as write:
        client.write_points(table, "room", time_precision=unit, protocol="line")
    lines = write.call_args.args[0]
    return [pd.Timestamp(int(line.split()[-1]) * (10**9 // PER_SECOND[unit])) for line in lines]


print("influxdb", version("influxdb"), "pandas", pd.__version__)
for unit in PER_SECOND:
    by_default, in_nanoseconds = sent(unit, None), sent(unit, "ns")
    print(f"unit {unit}: sent as of {by_default[0]}; with an index in nanoseconds {in_nanoseconds[0]}")
    assert by_default[0].year == 1970 and by_default[1] - by_default[0] <= pd.Timedelta("1ms")
    assert in_nanoseconds[0] == pd.Timestamp(FIRST).tz_localize(None)
PYTHON
venv/bin/python try.py
# Seen: unit None: sent as of 1970-01-21 10:55:23.045000; with an index in nanoseconds 2026-01-02 03:04:05
