#!/usr/bin/env bash
# One would guess: of a WAV file whose recorder was killed before it wrote the sizes, libsndfile reads what is
# there, whether the sizes are 0xFFFFFFFF or 0, the two values that recorders begin with.
# What happens: with 0xFFFFFFFF, or any size beyond the end of the file, all samples are read. With 0 the file
# opens without an error, says that it has 0 frames, and gives none: the recording is silently lost.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install -q soundfile==0.14.0 numpy==2.4.6
venv/bin/python - <<'PY'
import io
import struct

import soundfile


def recording(size: int) -> io.BytesIO:
    form = struct.pack("<HHIIHH", 1, 1, 16_000, 32_000, 2, 16)
    data = struct.pack("<1000h", *range(1000))
    body = b"WAVEfmt " + struct.pack("<I", 16) + form + b"data" + struct.pack("<I", size) + data
    return io.BytesIO(b"RIFF" + struct.pack("<I", size) + body)


print("soundfile", soundfile.__version__, soundfile.__libsndfile_version__)
counts = {hex(size): len(soundfile.read(recording(size))[0]) for size in (2000, 5000, 0xFFFFFFFF, 0)}
print(counts)
assert counts == {"0x7d0": 1000, "0x1388": 1000, "0xffffffff": 1000, "0x0": 0}
PY
# Seen: {'0x7d0': 1000, '0x1388': 1000, '0xffffffff': 1000, '0x0': 0}
