#!/usr/bin/env bash
# Guess: ecCodes refuses a field with NaN, as of a sensor that failed, or stores it as missing, at least with a bitmap of
# missing points and NaN stated as the missing value.
# What happens: it refuses NaN as the first value only. Anywhere else it stores it as the least value of the field, in GRIB 1
# and 2, with and without the bitmap, and says that no value is missing: the broken station reports the coldest temperature
# of all. With a number as the missing value it is missing.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet eccodes==2.50.0 numpy==2.4.6
cat > try.py <<'PYTHON'
import math

import eccodes
import numpy as np


def read_back(edition: int, values: list[float], **settings: float) -> tuple[list[float], int]:
    """The values that a message holds, and how many it says are missing."""
    message = eccodes.codes_grib_new_from_samples(f"GRIB{edition}")
    for key, value in {"Ni": len(values), "Nj": 1, **settings}.items():
        eccodes.codes_set(message, key, value)
    eccodes.codes_set_values(message, np.array(values))
    read = eccodes.codes_new_from_message(eccodes.codes_get_message(message))
    rounded = [round(float(value), 1) for value in eccodes.codes_get_values(read)]
    return rounded, eccodes.codes_get(read, "numberOfMissing")


NAN_SECOND = [281.5, math.nan, 279.0, 283.5]
print("ecCodes", eccodes.codes_get_api_version())
for edition in (1, 2):
    plain = read_back(edition, NAN_SECOND)
    by_nan = read_back(edition, NAN_SECOND, bitmapPresent=1, missingValue=math.nan)
    try:
        first = read_back(edition, [math.nan, 281.5, 279.0, 283.5])
    except eccodes.EncodingError:
        first = "refused"
    by_number = read_back(edition, [281.5, 9999.0, 279.0, 283.5], bitmapPresent=1, missingValue=9999)
    print(f"GRIB {edition}: NaN first: {first}; second: {plain}, with a bitmap {by_nan}; a number {by_number}")
    assert first == "refused"
    assert plain == by_nan == ([281.5, 279.0, 279.0, 283.5], 0)
    assert by_number == ([281.5, 9999.0, 279.0, 283.5], 1)
PYTHON
venv/bin/python try.py 2> /dev/null
# Seen: NaN first: refused; second: ([281.5, 279.0, 279.0, 283.5], 0)
