#!/usr/bin/env bash
# Guess: pyxdf, the reader of LabRecorder's files (XDF), gives each sample the time that was recorded with it, and smooths their
# jitter of milliseconds at most: a sensor of 10 readings per second that was away for 20 s has a gap of 20 s.
# What happens: by default it lays a line through all times. Only a gap above a second and above 500 samples divides the recording,
# which at 10 per second is 50 s. The 20 s are spread over the whole minute: readings come every 0.15 s, there is no gap, and the
# samples beside it are 10 s off. A warning tells of the rate alone. With `dejitter_timestamps=False` times are as recorded.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet pyxdf==1.17.5 numpy==2.4.6
cat > try.py <<'PYTHON'
import struct
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyxdf

RATE, SAMPLES = 10, 600
STREAM, HEAD = struct.pack("<I", 1), "<?xml version='1.0'?><info>{}</info>"


def chunk(kind: int, body: bytes) -> bytes:
    return b"\x04" + struct.pack("<IH", len(body) + 2, kind) + body


def tags(**values: object) -> bytes:
    return HEAD.format("".join(f"<{name}>{value}</{name}>" for name, value in values.items())).encode()


def read(times: np.ndarray, **options: bool) -> np.ndarray:
    """The times that pyxdf gives to the samples of a file that has these."""
    samples = b"".join(b"\x08" + struct.pack("<df", time, place) for place, time in enumerate(times))
    header = tags(name="room", type="T", channel_count=1, nominal_srate=RATE, channel_format="float32", created_at=0)
    footer = tags(first_timestamp=times[0], last_timestamp=times[-1], sample_count=len(times))
    body = b"\x04" + struct.pack("<I", len(times)) + samples
    chunks = chunk(1, tags(version="1.0")), *(chunk(kind, STREAM + text) for kind, text in ((2, header), (3, body), (6, footer)))
    Path("room.xdf").write_bytes(b"XDF:" + b"".join(chunks))
    streams, _ = pyxdf.load_xdf("room.xdf", **options)
    return streams[0]["time_stamps"]


print("pyxdf", version("pyxdf"))
for gap in (20, 60):
    times = 100 + np.arange(SAMPLES) / RATE
    times[SAMPLES // 2 :] += gap
    by_default, recorded = read(times), read(times, dejitter_timestamps=False)
    off, step = np.abs(by_default - times).max(), np.diff(by_default).max()
    print(f"gap of {gap} s: off by up to {off:.2f} s, largest step {step:.2f} s")
    assert np.array_equal(recorded, times)
    assert (9 < off < 10 and step < 0.2) if gap == 20 else (off < 0.01 and step > gap)
PYTHON
venv/bin/python try.py
# Seen: gap of 20 s: off by up to 9.97 s, largest step 0.15 s
