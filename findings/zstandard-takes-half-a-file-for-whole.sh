#!/usr/bin/env bash
# Guess: a .zst file that lacks its end, as after a power cut or a broken transfer, is refused where it is read, as gzip, bz2
# and xz files are, and as `zstd -d` does.
# What happens: `zstandard.open`, a `stream_reader`, `copy_stream` and `read_to_iter` give what is there and end as if it were
# all; only `decompress` refuses. pandas reads by the same library: a log of 200000 rows has 98993, without a word, while it
# refuses the same log cut in gzip. pyarrow refuses both.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet zstandard==0.25.0 pandas==3.1.1 pyarrow==26.0.1 numpy==2.4.6
cat > try.py <<'PYTHON'
import gzip
import io
import pathlib
import random
from collections.abc import Callable

import pandas
import pyarrow
import zstandard

random.seed(0)
ROWS = "".join(f"{row},{random.random()}\n" for row in range(200_000)).encode()
half = {}
for name, packed in (("log.csv.zst", zstandard.compress(ROWS)), ("log.csv.gz", gzip.compress(ROWS))):
    half[name] = packed[: len(packed) // 2]
    pathlib.Path(name).write_bytes(half[name])
reader, copied = zstandard.ZstdDecompressor(), io.BytesIO()
cut = half["log.csv.zst"]


def rows(read: Callable[[], bytes]) -> int | str:
    """How many lines are read, or the kind of the refusal."""
    try:
        return read().count(b"\n")
    except (zstandard.ZstdError, OSError, EOFError) as error:
        return type(error).__name__


def by_pandas(name: str) -> bytes:
    return b"\n" * len(pandas.read_csv(name, header=None))


seen = {
    "zstandard.open": rows(lambda: zstandard.open("log.csv.zst").read()),
    "stream_reader": rows(lambda: reader.stream_reader(io.BytesIO(cut)).read()),
    "copy_stream": rows(lambda: bytes(copied.getbuffer()) if reader.copy_stream(io.BytesIO(cut), copied) else b""),
    "read_to_iter": rows(lambda: b"".join(reader.read_to_iter(cut))),
    "pandas": rows(lambda: by_pandas("log.csv.zst")),
    "zstandard.decompress": rows(lambda: zstandard.decompress(cut)),
    "pyarrow": rows(lambda: pyarrow.input_stream("log.csv.zst", compression="zstd").read()),
    "gzip.open": rows(lambda: gzip.open("log.csv.gz").read()),
    "pandas of gzip": rows(lambda: by_pandas("log.csv.gz")),
}
print("zstandard", zstandard.__version__, "pandas", pandas.__version__, "pyarrow", pyarrow.__version__)
for name, count in seen.items():
    print(f"{name:21}", count)
counts = list(seen.values())
assert all(50_000 < count < 150_000 for count in counts[:5])
assert counts[5:] == ["ZstdError", "OSError", "EOFError", "EOFError"]
PYTHON
venv/bin/python try.py
# Seen: zstandard.open 98992; pandas 98993; zstandard.decompress ZstdError; gzip.open EOFError
