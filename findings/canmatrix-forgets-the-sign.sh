#!/usr/bin/env bash
# Guess: canmatrix, which converts descriptions of CAN buses, keeps of a signal what decodes it: its place, sign, scale, float and
# the multiplexer; or it says what a format cannot hold. Read back by canmatrix itself, a frame has the same values.
# What happens: so it is for DBC, KCD and DBF. In XLS and ARXML -5 degrees are 404.6, as the sign is lost; in XLS and SYM a float
# of 21.7 volts is 1101896090; in ARXML a big-endian pressure of 1000 is 800; and of two multiplexed signals JSON and ARXML give both in
# each frame, one of them made of the other's bits. Nothing is said.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet "canmatrix[arxml,dbc,dbf,kcd,sym,xls]==1.3.3"
cat > bus.dbc <<'DBC'
VERSION ""
NS_ :
BS_:
BU_: ECU

BO_ 256 Plain: 8 ECU
 SG_ Temperature : 0|12@1- (0.1,0) [-200|200] "degC" ECU
 SG_ Pressure : 23|16@0+ (0.25,0) [0|16383] "kPa" ECU
 SG_ Voltage : 32|32@1- (1,0) [0|0] "V" ECU

BO_ 257 Switched: 8 ECU
 SG_ Kind M : 0|8@1+ (1,0) [0|0] "" ECU
 SG_ Speed m0 : 8|16@1+ (0.01,0) [0|0] "m/s" ECU
 SG_ Load m1 : 8|16@1+ (2,5) [0|0] "kg" ECU

SIG_VALTYPE_ 256 Voltage : 1;
DBC
cat > try.py <<'PYTHON'
import logging
import struct
from importlib.metadata import version

import canmatrix.formats

FRAMES = {
    256: (-50 & 0xFFF).to_bytes(2, "little") + (4000).to_bytes(2, "big") + struct.pack("<f", 21.7),
    257: bytes([0]) + (1234).to_bytes(2, "little") + bytes(5),
}


def values(file: str) -> dict[str, float]:
    bus = next(iter(canmatrix.formats.loadp(file).values()))
    frames = {frame.arbitration_id.id: frame for frame in bus.frames}
    decoded = [frames[number].decode(data) for number, data in FRAMES.items()]
    return {name: round(float(value.phys_value), 2) for each in decoded for name, value in each.items()}


said = []
handler = logging.Handler(logging.WARNING)
handler.emit = said.append
logging.getLogger().addHandler(handler)
print("canmatrix", version("canmatrix"))
right = values("bus.dbc")
print("as given:", right)
seen = {}
for kind, settings in {"dbc": {}, "kcd": {}, "dbf": {}, "xls": {}, "arxml": {}, "sym": {}, "json": {"jsonAll": True}}.items():
    canmatrix.formats.dumpp(canmatrix.formats.loadp("bus.dbc"), f"out.{kind}", **settings)
    seen[kind] = {name: value for name, value in values(f"out.{kind}").items() if right.get(name) != value}
    print(f"{kind}: {seen[kind] or 'the same'}")
assert not seen["dbc"] and not seen["kcd"] and not seen["dbf"]
assert seen["xls"]["Temperature"] == seen["arxml"]["Temperature"] == 404.6
assert seen["xls"]["Voltage"] == seen["sym"]["Voltage"] == 1101896090
assert seen["arxml"]["Pressure"] == 800 and "Load" in seen["json"] and "Load" in seen["arxml"]
assert not said, [record.getMessage() for record in said]
PYTHON
venv/bin/python try.py
# Seen: xls: {'Temperature': 404.6, 'Voltage': 1101896090.0}; arxml: {'Temperature': 404.6, 'Pressure': 800.0, ...}
