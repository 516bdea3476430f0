#!/usr/bin/env bash
# Guess: the package senml reads a SenML pack as RFC 8428 has it: base name, time, unit and value hold until the next record that
# states them, so that a gateway sends the readings of several devices in one pack.
# What happens: it takes them of the first record alone. The thermometer of the second device becomes one more reading of the
# first, an hour later turns into the same time, and lux into degrees; a record that has but its base value has none.
# It writes version 5, of a draft, where the standard has 10. Nothing is said.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet senml==0.1.0
cat > try.py <<'PYTHON'
from importlib.metadata import version

from senml import SenMLDocument

PACK = [
    {"bn": "cellar/", "bt": 1_700_000_000, "bu": "Cel", "n": "air", "v": 12},
    {"n": "water", "v": 8},
    {"bn": "roof/", "bt": 1_700_003_600, "bu": "lx", "n": "light", "v": 900},
    {"bn": "loft/", "bu": "Cel", "n": "air", "v": 31},
    {"bn": "hall/", "bv": 20, "n": "air"},
]


def resolved() -> list[tuple[object, ...]]:
    """Name, time, unit and value of each record by section 4.6 of RFC 8428."""
    base: dict[str, object] = {}
    rows = []
    for record in PACK:
        base |= {key: value for key, value in record.items() if key.startswith("b")}
        value = base.get("bv", 0) + record.get("v", 0)
        rows.append((base["bn"] + record["n"], base["bt"], base["bu"], value))
    return rows


document = SenMLDocument.from_json(PACK)
absolute = [measurement.to_absolute(document.base) for measurement in document.measurements]
seen = [(each.name, each.time, each.unit, each.value) for each in absolute]
print("senml", version("senml"), "writes version", document.to_json()[0]["bver"])
for expected, read in zip(resolved(), seen, strict=True):
    print("by the standard", expected, "read", read)
assert seen[:2] == resolved()[:2]
assert seen[2:] == [
    ("cellar/light", 1_700_000_000, "Cel", 900),
    ("cellar/air", 1_700_000_000, "Cel", 31),
    ("cellar/air", 1_700_000_000, "Cel", None),
]
PYTHON
venv/bin/python try.py
# Seen: by the standard ('roof/light', 1700003600, 'lx', 900) read ('cellar/light', 1700000000, 'Cel', 900)
