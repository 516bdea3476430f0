#!/usr/bin/env bash
# Guess: pyEDFlib, which writes recordings of the heart and brain, refuses NaN, as of an electrode that came off, and values
# beyond the range of the header; and it reads as many samples as were written.
# What happens: NaN and infinity become the least value of the range, and all beyond it its bounds, without a word. The last data record
# is filled up with zeros that are read as samples: 15 samples at 10 Hz are 20, and 666 at 33.3333 Hz are 1001, since the
# record is made 30 s long to hold a whole number of them.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet pyEDFlib==0.1.42 numpy==2.4.6
cat > try.py <<'PYTHON'
import warnings

import numpy as np
import pyedflib

warnings.simplefilter("error")


def read_back(values: list[float], hertz: float = 10) -> list[float]:
    """What is read of a channel whose range is -100 to 100."""
    header = pyedflib.highlevel.make_signal_header("a", sample_frequency=hertz, physical_min=-100, physical_max=100)
    with pyedflib.EdfWriter("a.edf", 1) as file:
        file.setSignalHeader(0, header)
        file.writeSamples([np.array(values, float)])
    with pyedflib.EdfReader("a.edf") as file:
        return [round(float(value), 1) for value in file.readSignal(0)]


print("pyEDFlib", pyedflib.__version__)
bad = read_back([1, 2, np.nan, np.inf, 1000, -1000, 7, 8, 9, 10])
short = read_back(list(range(1, 16)))
odd = {hertz: len(read_back([1] * 666, hertz)) for hertz in (33, 33.3333)}
print("nan, inf, 1000 and -1000:", bad)
print("15 samples:", short)
print("666 samples, by rate:", odd)
assert bad == [1, 2, -100, -100, 100, -100, 7, 8, 9, 10]
assert short == [*range(1, 16), 0, 0, 0, 0, 0]
assert odd == {33: 693, 33.3333: 1001}
PYTHON
venv/bin/python try.py
# Seen: [1.0, 2.0, -100.0, -100.0, 100.0, -100.0, 7.0, 8.0, 9.0, 10.0]; 15 samples are 20; {33: 693, 33.3333: 1001}
