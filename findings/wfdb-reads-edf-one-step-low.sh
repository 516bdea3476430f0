#!/usr/bin/env bash
# Guess: the reader of EDF in wfdb gives the values that the file states, as pyEDFlib does, and each signal with its own rate.
# What happens: all values are one step of the converter too low: a humidity in steps of 1 % reads -1 to 99 for 0 to 100, and a
# balance at rest -0.01 for 0. Where signals have unlike rates, each faster one is averaged down to the slowest: of an ECG with
# 256 readings per second beside a temperature with one, a mean per second is left, which is about 0. Nothing is said of either.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet --no-deps wfdb==4.3.1
venv/bin/pip install --quiet pandas==3.1.1 fsspec==2026.9.0 pyEDFlib==0.1.42 numpy==2.4.6
cat > try.py <<'PYTHON'
from importlib.metadata import version

import numpy as np
import pyedflib
from wfdb.io.convert.edf import read_edf

SECONDS = 20


def record(path: str, *signals: tuple[str, int, int, float, np.ndarray]) -> tuple[list[np.ndarray], np.ndarray]:
    """The signals of a file, by pyEDFlib and by wfdb."""
    with pyedflib.EdfWriter(path, len(signals), pyedflib.FILETYPE_EDF) as file:
        for place, (label, rate, steps, largest, _) in enumerate(signals):
            least, least_step = (-largest, -steps) if label in ("balance", "ECG") else (0, 0)
            file.setSignalHeader(place, {
                "label": label, "dimension": "", "sample_frequency": rate, "physical_min": least, "physical_max": largest,
                "digital_min": least_step, "digital_max": steps, "transducer": "", "prefilter": ""})  # fmt: skip
        file.writeSamples([values for *_, values in signals])
    with pyedflib.EdfReader(path) as file:
        read = [file.readSignal(place) for place in range(len(signals))]
    return read, read_edf(path).p_signal


print("wfdb", version("wfdb"), "pyEDFlib", version("pyEDFlib"))
humidity, weight = np.linspace(0, 100, SECONDS).round(), np.linspace(0, 1, SECONDS).round(2)
by_pyedflib, by_wfdb = record("room.edf", ("humidity", 1, 100, 100, humidity), ("balance", 1, 100, 1, weight))
for place, values in enumerate((humidity, weight)):
    print("written", values[[0, 1, -1]], "pyEDFlib", by_pyedflib[place][[0, 1, -1]], "wfdb", by_wfdb[[0, 1, -1], place])
    step = (1, 0.01)[place]
    assert np.abs(by_pyedflib[place] - values).max() < 1.01 * step and np.allclose(by_wfdb[:, place], by_pyedflib[place] - step)
beats = 3000 * np.sin(2 * np.pi * 5 * np.arange(256 * SECONDS) / 256)
by_pyedflib, by_wfdb = record("night.edf", ("ECG", 256, 32767, 3276.7, beats), ("temperature", 1, 100, 100, humidity))
print(f"ECG: pyEDFlib {by_pyedflib[0].size} values to {by_pyedflib[0].max():.0f}; wfdb {len(by_wfdb)} to {by_wfdb[:, 0].max():.1f}")
assert by_pyedflib[0].size == 256 * SECONDS and by_pyedflib[0].max() > 2900
assert len(by_wfdb) == SECONDS and np.abs(by_wfdb[:, 0]).max() < 1
PYTHON
venv/bin/python try.py
# Seen: written [0. 5. 100.] wfdb [-1. 4. 99.]; ECG: pyEDFlib 5120 values to 3000; wfdb 20 to -0.1
