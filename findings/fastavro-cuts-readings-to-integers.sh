#!/usr/bin/env bash
# Guess: fastavro refuses a value that does not fit its field's type, as Avro's own library does: 21.7 degrees in a field of
# whole numbers, 3000000000 in one of 32 bits, a text in one of yes and no.
# What happens: it cuts 21.7 to 21 and -0.9 to 0, writes 3000000000 into a file that other readers may not read, makes yes of
# "no", and infinity of 1e40, without a word. `writer(..., validator=True)` refuses all but the last;
# Avro's own library refuses that as well.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet fastavro==1.13.1 avro==1.12.1
cat > try.py <<'PYTHON'
import io
import json
import math
from importlib.metadata import version

import avro.datafile
import avro.errors
import avro.io
import avro.schema
import fastavro

SENT = [("long", 21.7), ("long", -0.9), ("int", 3_000_000_000), ("boolean", "no"), ("float", 1e40), ("double", 21.7)]


def schema(kind: str) -> dict[str, object]:
    return {"type": "record", "name": "Reading", "fields": [{"name": "value", "type": kind}]}


def by_fastavro(kind: str, value: object, **settings: bool) -> object:
    """What is read of a value, or the kind of the refusal."""
    file = io.BytesIO()
    try:
        fastavro.writer(file, fastavro.parse_schema(schema(kind)), [{"value": value}], **settings)
    except fastavro.validation.ValidationError:
        return "refused"
    file.seek(0)
    return next(fastavro.reader(file))["value"]


def by_avro(kind: str, value: object) -> str:
    writer = avro.io.DatumWriter(avro.schema.parse(json.dumps(schema(kind))))
    try:
        writer.write({"value": value}, avro.io.BinaryEncoder(io.BytesIO()))
    except (avro.errors.AvroTypeException, OverflowError):
        return "refused"
    return "written"


print("fastavro", version("fastavro"), "avro", version("avro"))
seen = [(by_fastavro(*each), by_fastavro(*each, validator=True), by_avro(*each)) for each in SENT]
for (kind, value), (plain, checked, official) in zip(SENT, seen, strict=True):
    print(f"{kind:7} {value!r:10} fastavro {plain!r}, with a validator {checked!r}, avro {official}")
assert [plain for plain, _, _ in seen] == [21, 0, 3_000_000_000, True, math.inf, 21.7]
assert [checked for _, checked, _ in seen] == ["refused"] * 4 + [math.inf, 21.7]
assert [official for _, _, official in seen] == ["refused"] * 5 + ["written"]
PYTHON
venv/bin/python try.py
# Seen: long 21.7 fastavro 21, with a validator 'refused', avro refused
