#!/usr/bin/env bash
# Guess: pycayennelpp, which encodes sensor values for LoRaWAN, refuses a value that its field does not hold: it does so for
# humidity or light, with "exceed value range".
# What happens: only fields without a sign are checked. Analogue values of +-327.67, temperatures, accelerations and rotations
# wrap: 400 ppm of an analogue sensor arrive as -255.36, 40 g as -25.536, without a word on either side. And all values are
# cut, not rounded: 0.29 is 0.28.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet pycayennelpp==2.4.0
cat > try.py <<'PYTHON'
from importlib.metadata import version

from cayennelpp import LppFrame


def arrives(kind: str, *values: float) -> tuple[float, ...] | str:
    """What the receiver decodes, or the sender's refusal."""
    frame = LppFrame()
    try:
        getattr(frame, f"add_{kind}")(1, *values)
        return LppFrame().from_bytes(bytes(frame)).data[0].value
    except ValueError as error:
        return str(error)


print("pycayennelpp", version("pycayennelpp"))
analogue = [("analog_input", 300), ("analog_input", 400), ("analog_input", 0.29)]
sent = [*analogue, ("accelerometer", 0, 0, 40), ("luminosity", 70_000)]
seen = [arrives(*each) for each in sent]
for each, value in zip(sent, seen, strict=True):
    print(*each, "->", value)
assert seen == [(300.0,), (-255.36,), (0.28,), (0.0, 0.0, -25.536), "Invalid data, exceed value range!"]
PYTHON
venv/bin/python try.py
# Seen: analog_input 400 -> (-255.36,)
