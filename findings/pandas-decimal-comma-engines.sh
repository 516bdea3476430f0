#!/usr/bin/env bash
# A sensor export with decimal commas (`decimal=","`) in which one value has a point: 1.234, a thousand in such files.
# One would guess: pandas reads it alike, whichever engine splits the lines, and does not take the point for a
# decimal one, as `decimal=","` is stated.
# What happens: the C and pyarrow engines leave the column as text. The Python engine, which pandas chooses itself
# for `sep=None` (the delimiter is to be found), reads it as 1.234: a thousandth, without a word.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet pandas==3.0.0 pyarrow==22.0.0
cat > show.py <<'PY'
import io
import sys

import pandas

text = "temperature;watts\n21,5;998\n21,6;1.234\n"
print("pandas", pandas.__version__)
seen = {}
for engine in ("c", "pyarrow", "python"):
    table = pandas.read_csv(io.StringIO(text), sep=";", decimal=",", engine=engine)
    seen[engine] = table.watts.tolist()
    print(f"engine={engine}: watts are {table.watts.dtype}: {seen[engine]}")
as_expected = seen["c"] == seen["pyarrow"] == ["998", "1.234"] and seen["python"] == [998.0, 1.234]
sys.exit(not as_expected)
PY
venv/bin/python show.py
