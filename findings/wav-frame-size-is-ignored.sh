#!/usr/bin/env bash
# One would guess: a PCM WAV of one channel whose header says 24 bits and frames (nBlockAlign) of 4 bytes, as
# converters that put 24 bits into 32-bit words write it, is read by the size of its frames: 4 samples from 16
# bytes; or it is refused.
# What happens: libsndfile takes the samples for packed 3-byte words and returns 5 samples of noise without an
# error or a warning. scipy reads the same file as 4 samples in containers of 32 bits.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install -q soundfile==0.14.0 scipy==1.17.1 numpy==2.4.6
venv/bin/python - <<'PY'
import struct

import soundfile
from scipy.io import wavfile

samples = [0.5, -0.5, 0.25, -0.25]
data = struct.pack("<4i", *(round(value * 2**31) for value in samples))
form = struct.pack("<HHIIHH", 1, 1, 16_000, 64_000, 4, 24)
body = b"WAVEfmt " + struct.pack("<I", 16) + form + b"data" + struct.pack("<I", len(data)) + data
with open("a.wav", "wb") as file:
    file.write(b"RIFF" + struct.pack("<I", len(body)) + body)
read = soundfile.read("a.wav")[0].tolist()
_, whole = wavfile.read("a.wav")
print("soundfile", soundfile.__version__, soundfile.__libsndfile_version__)
print("written  ", samples)
print("scipy    ", (whole / 2**31).tolist())
print("libsndfile", read)
assert (whole / 2**31).tolist() == samples
assert len(read) == 5 and read[:4] != samples
PY
# Seen: libsndfile [0.0, 7.62939453125e-06, 0.005859375, 0.25, 0.0]
