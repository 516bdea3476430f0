#!/usr/bin/env bash
# Guess: the reader of MCAP gives the newest message first with `reverse=True`, whatever way the file was written, or refuses, so
# that `next(...)` is the last known state of a robot.
# What happens: where a file has no index of its chunks, as a writer on a small board makes it (`use_chunking=False`, or no index),
# `reverse` is ignored: the messages come from the oldest on, and the first is the state at the start. Nothing is said.
# Topics and times are followed in such files.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet mcap==1.6.0
cat > try.py <<'PYTHON'
from importlib.metadata import version
from io import BytesIO

from mcap.reader import make_reader
from mcap.writer import IndexType, Writer

SECOND, MESSAGES = 10**9, 100


def recorded(**options: object) -> BytesIO:
    file = BytesIO()
    writer = Writer(file, **options)
    writer.start()
    channel = writer.register_channel("/battery", "json", writer.register_schema("level", "jsonschema", b"{}"))
    for level in reversed(range(MESSAGES)):
        time = (MESSAGES - level) * SECOND
        writer.add_message(channel, log_time=time, data=str(level).encode(), publish_time=time)
    writer.finish()
    return file


def first(file: BytesIO, **options: object) -> int:
    file.seek(0)
    _, _, message = next(iter(make_reader(file).iter_messages(**options)))
    return int(message.data)


print("mcap", version("mcap"))
for name, options, newest in (
    ("by default", {}, 0),
    ("without chunks", {"use_chunking": False}, 99),
    ("without an index", {"index_types": IndexType.NONE}, 99),
):
    file = recorded(**options)
    print(f"{name}: first {first(file)} %, first in reverse {first(file, reverse=True)} %")
    assert first(file) == 99 and first(file, reverse=True) == newest
    assert first(file, starting_at=41 * SECOND) == 59
PYTHON
venv/bin/python try.py
# Seen: without chunks: first 99 %, first in reverse 99 %
