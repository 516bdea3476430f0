#!/usr/bin/env bash
# Guess: a position that a GPS receiver leaves empty, as it does until it sees its satellites, has no latitude and longitude in
# pynmea2: they are None, as the altitude and the speed of the same sentences are, or an error.
# What happens: they are 0.0 and 0.0, a place in the Gulf of Guinea, so that the mean of a track which begins indoors is off by
# thousands of kilometres and a map shows a device there. Whether there is a fix stands in `is_valid`, which is also
# False for an old position that the receiver repeats. pynmeagps gives an empty text for what is empty.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet pynmea2==1.19.0 pynmeagps==1.1.8
cat > try.py <<'PYTHON'
from functools import reduce
from importlib.metadata import version
from operator import xor

import pynmea2
from pynmeagps import NMEAReader

BODIES = {
    "searching": "GPGGA,123519.00,,,,,0,00,99.99,,M,,M,,",
    "searching, minimum": "GPRMC,123519.00,V,,,,,,,230394,,,N",
    "repeating": "GPGGA,123519.00,4723.0000,N,00832.0000,E,0,00,99.99,,M,,M,,",
    "fix": "GPGGA,123519.00,4723.0000,N,00832.0000,E,1,08,0.9,545.4,M,46.9,M,,",
}
print("pynmea2", version("pynmea2"), "pynmeagps", version("pynmeagps"))
seen = {}
for name, body in BODIES.items():
    sentence = f"${body}*{reduce(xor, body.encode()):02X}\r\n"
    by_pynmea2, by_pynmeagps = pynmea2.parse(sentence), NMEAReader.parse(sentence)
    place = round(by_pynmea2.latitude, 4), round(by_pynmea2.longitude, 4)
    seen[name] = place, by_pynmea2.is_valid, (by_pynmeagps.lat, by_pynmeagps.lon)
    print(f"{name:18} pynmea2 {place}, valid {by_pynmea2.is_valid}, pynmeagps {seen[name][2]}")
assert seen["searching"] == seen["searching, minimum"] == ((0.0, 0.0), False, ("", ""))
assert seen["repeating"][:2] == ((47.3833, 8.5333), False) and seen["fix"][:2] == ((47.3833, 8.5333), True)
altitude = pynmea2.parse(f"${BODIES['searching']}").altitude
speed = pynmea2.parse(f"${BODIES['searching, minimum']}").spd_over_grnd
print("altitude", altitude, "speed", speed)
assert altitude is None and speed is None
PYTHON
venv/bin/python try.py
# Seen: searching: pynmea2 (0.0, 0.0), valid False, pynmeagps ('', '')
