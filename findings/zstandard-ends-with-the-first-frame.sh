#!/usr/bin/env bash
# Guess: all ways of a library read the same bytes of a file to which a device appends a compressed frame per boot or batch, as
# `zstd -d`, gzip and the format's specification have it.
# What happens: `zstandard.decompress` and `read_to_iter` give the first frame and leave out the rest without a word, while
# `zstandard.open`, a `stream_reader` and `copy_stream` read all. So it is with lz4: `decompress` gives the first frame, `open`
# all of them.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet zstandard==0.25.0 lz4==4.4.5
cat > try.py <<'PYTHON'
import gzip
import io
import pathlib
from importlib.metadata import version

import lz4.frame
import zstandard

PARTS = (b"monday\n", b"tuesday\n")
FIRST, ALL = PARTS[0], b"".join(PARTS)
log, short = (b"".join(map(pack, PARTS)) for pack in (zstandard.compress, lz4.frame.compress))
pathlib.Path("log.zst").write_bytes(log)
pathlib.Path("log.lz4").write_bytes(short)
reader, copied = zstandard.ZstdDecompressor(), io.BytesIO()
reader.copy_stream(io.BytesIO(log), copied)
seen = {
    "gzip.decompress": gzip.decompress(b"".join(map(gzip.compress, PARTS))),
    "zstandard.open": zstandard.open("log.zst").read(),
    "stream_reader": reader.stream_reader(io.BytesIO(log)).read(),
    "copy_stream": copied.getvalue(),
    "lz4.frame.open": lz4.frame.open("log.lz4").read(),
    "zstandard.decompress": zstandard.decompress(log),
    "read_to_iter": b"".join(reader.read_to_iter(io.BytesIO(log))),
    "lz4.frame.decompress": lz4.frame.decompress(short),
}
print("zstandard", version("zstandard"), "lz4", version("lz4"))
for name, value in seen.items():
    print(f"{name:20}", value)
assert list(seen.values()) == [ALL] * 5 + [FIRST] * 3
PYTHON
venv/bin/python try.py
# Seen: zstandard.open b'monday\ntuesday\n'; zstandard.decompress b'monday\n'
