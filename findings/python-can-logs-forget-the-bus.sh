#!/usr/bin/env bash
# Guess: what python-can logs of two buses is read back as it was, whichever of its kinds of file is chosen by the name: time, bus,
# direction and CAN FD.
# What happens: CSV and SQLite have no column for the bus, the direction and CAN FD: two sensors with the same number on two buses
# become one signal, and a frame of 12 bytes becomes a classic one, which has at most 8. ASC keeps them, but its times
# begin at 0 when read, so that logs of several devices no longer lie side by side. BLF keeps all. Nothing is said.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet python-can==4.6.1
cat > try.py <<'PYTHON'
import can

START = 1_700_000_000.0
engine, gearbox, sent, long = 0, 1, {"is_rx": False}, {"is_fd": True, "data": bytes(12)}
FRAMES = [
    can.Message(timestamp=START + number, arbitration_id=0x123, is_extended_id=False, channel=bus, **settings)
    for number, (bus, settings) in enumerate([(engine, {}), (gearbox, {}), (engine, sent), (engine, long)])
]


def about(frame: can.Message) -> dict[str, object]:
    return {"time": round(frame.timestamp, 3), "bus": frame.channel, "received": frame.is_rx, "FD": frame.is_fd}


print("python-can", can.__version__)
lost = {}
for kind in ("blf", "asc", "csv", "db"):
    with can.Logger(f"log.{kind}") as log:
        for frame in FRAMES:
            log.on_message_received(frame)
    read = list(can.LogReader(f"log.{kind}"))
    assert [(each.arbitration_id, each.data) for each in read] == [(each.arbitration_id, each.data) for each in FRAMES]
    pairs = [(about(before), about(after)) for before, after in zip(FRAMES, read, strict=True)]
    lost[kind] = [key for key in pairs[0][0] if any(before[key] != after[key] for before, after in pairs)]
    print(f"{kind}: not as it was: {lost[kind]}, last frame: {pairs[-1][1]}")
assert lost == {"blf": [], "asc": ["time"], "csv": ["bus", "received", "FD"], "db": ["bus", "received", "FD"]}
PYTHON
venv/bin/python try.py
# Seen: csv: not as it was: [bus, received, FD], last frame: {time: 1700000003.0, bus: None, received: True, FD: False}
