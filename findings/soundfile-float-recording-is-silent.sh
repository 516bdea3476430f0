#!/usr/bin/env bash
# Guess: soundfile scales between whole numbers and floats: read as int16, a recording fills the same range whatever its
# file holds, and int16 samples written into a file of floats lie within -1 and 1, which those files mean.
# What happens: it scales for PCM, FLAC, Vorbis and MP3, but not for floats. A WAV, AIFF or CAF of floats read as int16 has
# zeros and ones alone: silence, without a word. And int16 written as floats are samples up to 32767, which every player clips.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet soundfile==0.14.0 numpy==2.4.6
cat > try.py <<'PYTHON'
import numpy as np
import soundfile

TONE = np.sin(np.arange(8000) / 8000 * 2 * np.pi * 440) / 2
KINDS = [("WAV", "PCM_16"), ("WAV", "PCM_24"), ("FLAC", "PCM_16"), ("OGG", "VORBIS"), ("MP3", "MPEG_LAYER_III")]
FLOATS = [("WAV", "FLOAT"), ("AIFF", "FLOAT"), ("CAF", "DOUBLE")]


def loudest(kind: str, subtype: str) -> tuple[int, float]:
    """Of a tone of 0.5: as int16 from the file of the floats, and as floats from the file of the int16."""
    soundfile.write("tone", TONE, 8000, subtype, format=kind)
    as_integers = int(np.abs(soundfile.read("tone", dtype="int16")[0].astype(int)).max())
    soundfile.write("tone", (TONE * 32768).astype(np.int16), 8000, subtype, format=kind)
    return as_integers, round(float(np.abs(soundfile.read("tone")[0]).max()), 2)


print("soundfile", soundfile.__version__, soundfile.__libsndfile_version__)
seen = {kind: loudest(*kind) for kind in KINDS + FLOATS}
for kind, (as_integers, as_floats) in seen.items():
    print(*kind, "read as int16:", as_integers, "written as int16:", as_floats)
assert all(abs(seen[kind][0] - 16384) < 3000 and abs(seen[kind][1] - 0.5) < 0.05 for kind in KINDS)
assert all(seen[kind] == (0, 16384.0) for kind in FLOATS)
PYTHON
venv/bin/python try.py
# Seen: WAV PCM_16 read as int16: 16384 written as int16: 0.5; WAV FLOAT read as int16: 0 written as int16: 16384.0
