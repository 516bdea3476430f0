#!/usr/bin/env bash
# Guess: `frame[mask].to_parquet()` writes the row numbers as a column `__index_level_0__` whenever rows were left
# out, as pandas before 3 did: two devices that clean their tables by the same code have files of the same columns.
# What happens: since pandas 3 a filter whose remaining row numbers have an even step keeps a RangeIndex, which is
# stored as metadata alone. So the file has the column or not depending on WHICH rows were bad: none, the first,
# the last or every other one: no column; one in the middle: a further column of row numbers. A trainer that takes
# every column of numbers has two inputs on one device and three on the next.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check pandas==3.0.0 pyarrow==22.0.0
venv/bin/python - <<'PY'
import pandas
import pyarrow
import pyarrow.parquet

print("pandas", pandas.__version__, "pyarrow", pyarrow.__version__)
frame = pandas.DataFrame({"temperature": [18.0 + n / 8 for n in range(10)], "co2": [400.0 + n for n in range(10)]})
seen = {}
for bad in ([], [0], [9], [0, 2, 4, 6, 8], [3]):
    frame[~frame.index.isin(bad)].to_parquet("clean.parquet")
    seen[tuple(bad)] = pyarrow.parquet.read_schema("clean.parquet").names
    print("rows left out:", bad, "-> columns in the file:", seen[tuple(bad)])
plain = ["temperature", "co2"]
assert seen[()] == seen[(0,)] == seen[(9,)] == seen[(0, 2, 4, 6, 8)] == plain
assert seen[(3,)] == [*plain, "__index_level_0__"]
PY
