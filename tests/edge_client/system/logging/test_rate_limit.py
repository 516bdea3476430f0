"""One line per kind, device and minute, with a count; made-up names do not bypass the limit."""

import io
import logging
import subprocess
import sys

import pytest

from edge_client.system.logging.setup import MAX_DEVICES, MAX_LINES, WINDOW_S, Limiter, begin_inherited_log


def record(words: str = "%s: ignored", device: str | None = None, **facts: object) -> logging.LogRecord:
    made = logging.LogRecord("x", logging.WARNING, "f.py", 1, words, (device,) if "%s" in words else (), None)
    made.__dict__.update({"device": device, **facts} if device is not None else facts)
    return made


def lines(limiter: Limiter, *records: logging.LogRecord, now: float = 0.0) -> list[str]:
    return [line.getMessage() for made in records for line in limiter.take(made, now)]


def test_a_flood_of_one_device_is_one_line_a_minute_with_its_count() -> None:
    limiter = Limiter()
    assert lines(limiter, *[record(device="pi", reason="malformed")] * 5000) == ["pi: ignored"]
    later = lines(limiter, *[record(device="pi", reason="malformed")] * 3, now=WINDOW_S)
    assert later == ["pi: ignored (the last of 4999 such lines in 60 s)"]
    assert lines(limiter, record(device="pi", reason="malformed"), now=2 * WINDOW_S) == [
        "pi: ignored (the last of 3 such lines in 60 s)"
    ]


def test_each_kind_device_and_reason_has_its_own_line() -> None:
    limiter = Limiter()
    reported = [
        record(device="a", reason="malformed"),
        record(device="b", reason="malformed"),
        record(device="a", reason="oversized"),
        record("%s refuses", device="a", reason="malformed"),
        record("%s", device="a", reason="malformed", what="update refused"),
    ]
    assert len(lines(limiter, *reported, *reported)) == len(reported)


def test_messages_not_about_a_device_are_never_limited() -> None:
    assert lines(Limiter(), *[record("epoch is done")] * 3) == ["epoch is done"] * 3


def test_a_traceback_that_a_loop_repeats_is_one_line_a_minute() -> None:
    def failed(raised: Exception) -> logging.LogRecord:
        return logging.LogRecord(
            "asyncio", logging.ERROR, "f.py", 1, "failed", (), (type(raised), raised, None)
        )

    limiter = Limiter()
    assert len(lines(limiter, *[failed(OSError("no room"))] * 2000, failed(OSError("no way")))) == 2
    assert lines(limiter, now=WINDOW_S) == []
    assert [line.getMessage() for line in limiter.due(2 * WINDOW_S)] == [
        "failed (the last of 1999 such lines in 120 s)"
    ]


WITHOUT_DESCRIPTORS = """
import logging, os, resource
from edge_client.system.logging.setup import begin_inherited_log
begin_inherited_log(logging.INFO)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
taken = []
try:
    while True:
        taken.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    logging.warning("socket\x1b: no room")
    for _ in range(100):
        logging.warning("%d", "no number")
"""


def test_lines_are_written_without_a_free_descriptor_and_a_bad_line_is_no_flood() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_DESCRIPTORS], capture_output=True, text=True, timeout=60
    )
    first, second = done.stderr.splitlines()
    assert first.endswith("WARNING socket\\x1b: no room")
    assert second.startswith("lines of the log are lost: TypeError")


def test_made_up_names_share_one_line_and_the_table_stays_small() -> None:
    limiter = Limiter()
    flood = [record(device=f"made-up-{n}", reason="malformed") for n in range(50_000)]
    assert len(lines(limiter, *flood)) == MAX_DEVICES + 1
    assert len(limiter) == MAX_DEVICES + 1
    reported = [line for line in lines(limiter, record("other words"), now=WINDOW_S) if "such lines" in line]
    assert reported == [f"made-up-49999: ignored (the last of {50_000 - MAX_DEVICES - 1} such lines in 60 s)"]


def test_made_up_reasons_do_not_fill_the_table_either() -> None:
    limiter = Limiter()
    lines(limiter, *[record(device="pi", reason=f"reason-{n}") for n in range(2 * MAX_LINES)])
    assert len(limiter) <= MAX_LINES + 2


def test_suppressed_lines_are_reported_once() -> None:
    limiter = Limiter()
    lines(limiter, *[record(device="pi", reason="malformed")] * 2)
    assert [line.getMessage() for line in limiter.rest(1.0)] == ["pi: ignored"]
    assert (list(limiter.rest(2.0)), len(limiter)) == ([], 0)


def test_the_limit_applies_in_processes_with_an_inherited_log(monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(root, "handlers", [])
    begin_inherited_log(logging.INFO)
    log = logging.getLogger("flooded")
    for _ in range(1000):
        log.warning("%s: ignored", "pi", extra={"device": "pi", "reason": "malformed"})
    (handler,) = root.handlers
    handler.close()
    printed = sys.stderr.getvalue().splitlines()
    assert len(printed) == 2
    assert "the last of 999 such lines" in printed[1]
