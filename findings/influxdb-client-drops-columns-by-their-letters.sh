#!/usr/bin/env bash
# Guess: influxdb-client writes all columns of a table but that which it is told holds the times.
# What happens: it takes each column whose name is a part of that column's name for the times too. With times in `timestamp` the
# columns t, p and m (temperature, pressure, mass) are not in the lines that are sent, and nothing is said. Of several such columns
# the last in the order of letters gives the times: told to take `device_time` beside `time`, when the message came, it sends
# the latter as the time of the reading. With the times as the table's index all is written.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet influxdb-client==1.50.0 pandas==3.1.1 numpy==2.4.6
cat > try.py <<'PYTHON'
from importlib.metadata import version

import pandas as pd
from influxdb_client.client.write.dataframe_serializer import data_frame_to_list_of_points
from influxdb_client.client.write_api import PointSettings

READ = pd.date_range("2026-01-02T03:04:05Z", periods=2, freq="min")
CAME = READ + pd.Timedelta("8h")
READINGS = {"t": [20.5, 20.6], "p": [1013.2, 1013.1], "m": [3.5, 3.4], "humidity": [40.0, 41.0]}


def first_line(table: pd.DataFrame, **options: str) -> tuple[list[str], pd.Timestamp]:
    """The names of the fields and the time of the first line that is sent."""
    lines = data_frame_to_list_of_points(table, PointSettings(), data_frame_measurement_name="room", **options)
    _, fields, time = lines[0].split(" ")
    return [field.split("=")[0] for field in fields.split(",")], pd.Timestamp(int(time), tz="UTC")


print("influxdb-client", version("influxdb-client"))
fields, time = first_line(pd.DataFrame(READINGS, index=READ))
print("times as the index:", fields, time)
assert fields == sorted(READINGS) and time == READ[0]
for column, kept in (("timestamp", ["humidity"]), ("when", sorted(READINGS))):
    fields, time = first_line(pd.DataFrame({column: READ, **READINGS}), data_frame_timestamp_column=column)
    print(f"times in {column}:", fields, time)
    assert fields == kept and time == READ[0]
table = pd.DataFrame({"device_time": READ, "time": CAME, "humidity": READINGS["humidity"]})
fields, time = first_line(table, data_frame_timestamp_column="device_time")
print("times in device_time, beside time:", fields, time)
assert fields == ["humidity"] and time == CAME[0]
PYTHON
venv/bin/python try.py
# Seen: times in timestamp: ['humidity']; times in device_time, beside time: 11:04:05 for 03:04:05
