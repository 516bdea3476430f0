#!/usr/bin/env bash
# Guess: where a recording (EDF) has a temperature once per second beside a signal of 256 per second, MNE gives both with 256 per
# second, holds or joins the readings between, never leaves the range that was measured, and gives the same value for a moment
# whichever part of the file is read.
# What happens: what is read is taken as periodic and put through a Fourier transform. A step from 20 to 30 degrees becomes 18.8
# to 31.2 with overshoots, of which nothing is said where the whole file is read. Where a part is (`preload=False`), a warning
# tells of "edge artifacts": two seconds with the step in their middle bend back to 20 at their end, where the file has 30,
# so that each cut has another curve. The signal with the highest rate is right.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet mne==1.13.2 numpy==2.4.6 scipy==1.17.1
cat > try.py <<'PYTHON'
import warnings
from pathlib import Path

import mne
import numpy as np

FAST, SECONDS = 256, 10
SIGNAL = (1000 * np.sin(2 * np.pi * 5 * np.arange(FAST * SECONDS) / FAST)).astype("<i2")
HEAT = np.repeat([2000, 3000], SECONDS // 2).astype("<i2")
FIELDS = [(["ECG", "Temp"], 16), (["", ""], 80), (["uV", "degC"], 8), ([-3276.8, -327.68], 8), ([3276.7, 327.67], 8),
          ([-32768] * 2, 8), ([32767] * 2, 8), (["", ""], 80), ([FAST, 1], 8), (["", ""], 32)]  # fmt: skip


def text(*fields: tuple[object, int]) -> bytes:
    return b"".join(str(value).ljust(width).encode() for value, width in fields)


head = text((0, 8), ("X X X X", 80), ("Startdate 02-JAN-2026 X X X", 80), ("02.01.26", 8), ("10.00.00", 8), (768, 8), ("", 44))
head += text((SECONDS, 8), (1, 8), (2, 4), *((value, width) for values, width in FIELDS for value in values))
records = (SIGNAL[FAST * second :][:FAST].tobytes() + HEAT[second].tobytes() for second in range(SECONDS))
Path("night.edf").write_bytes(head + b"".join(records))
mne.set_log_level("WARNING")
print("mne", mne.__version__)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    signal, heat = mne.io.read_raw_edf("night.edf", preload=True).get_data()
assert not said
start, end = 4 * FAST, 6 * FAST
_, cut = mne.io.read_raw_edf("night.edf").get_data(start=start, stop=end)
print(f"signal off by {np.abs(signal * 1e6 - SIGNAL / 10).max():.3f} uV; degrees from {heat.min():.1f} to {heat.max():.1f}")
print("seconds 4 to 6 of the whole", heat[start:end:64].round(1), "read alone", cut[::64].round(1))
assert np.allclose(signal * 1e6, SIGNAL / 10, atol=0.01)
assert 18 < heat.min() < 19 and 31 < heat.max() < 32 and np.allclose(heat[::FAST], HEAT / 100, atol=0.01)
assert abs(heat[end - 1] - 30) < 2 and abs(cut[-1] - 20) < 1 and np.abs(heat[start:end] - cut).max() > 9
PYTHON
venv/bin/python try.py
# Seen: degrees from 18.8 to 31.2; seconds 4 to 6 end with 30.6 in the whole file, with 21.5 read alone
