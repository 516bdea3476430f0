"""One line per record with its context; text from devices cannot forge lines."""

import json
import logging
import sys
import threading
from typing import Any

import pytest

from edge_client.system.logging.formatters import HumanFormat, JsonFormat, about

HOSTILE = "no\r\n14:00:00 ERROR all is lost\x1b[2J\u2028\u202eneti\x00\x85"
"""Text that a terminal, a browser or str.splitlines would treat as a separate line."""


def record(message: str = "%s is late", *args: Any, exc_info: Any = None, **facts: Any) -> logging.LogRecord:
    made = logging.LogRecord("edge_server.x", logging.WARNING, __file__, 1, message, args, exc_info)
    made.created = 1_700_000_000.25
    for name, value in facts.items():
        setattr(made, name, value)
    return made


def human(made: logging.LogRecord) -> str:
    return HumanFormat().format(made).partition(" ")[2]


def raised(text: str) -> Any:
    try:
        raise ValueError(text)
    except ValueError:
        return sys.exc_info()


def test_a_human_line_ends_with_its_context() -> None:
    about(federation="home", run="r1", round=3)
    line = human(record("%s is late", "pi-3", device="pi-3", reason="stale-round"))
    assert line == ("WARNING pi-3 is late [federation=home run=r1 round=3 device=pi-3 reason=stale-round]")


def test_a_line_without_context_is_the_bare_message() -> None:
    assert human(record("all is well")) == "WARNING all is well"


def test_a_json_line_is_one_object() -> None:
    about(federation="home", run="r1", round=3)
    line = JsonFormat().format(record("%s is late", "pi-3", device="pi-3", reason="stale-round"))
    # 1,700,000,000 s after 1970 are 2023-11-14 22:13:20.
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.250+00:00",
        "level": "warning",
        "logger": "edge_server.x",
        "message": "pi-3 is late",
        "federation": "home",
        "run": "r1",
        "round": 3,
        "device": "pi-3",
        "reason": "stale-round",
    }


def test_the_fields_of_a_record_override_the_context() -> None:
    about(round=3, device="this-one")
    reported = json.loads(JsonFormat().format(record("x", round=2, device="another")))
    assert (reported["round"], reported["device"]) == (2, "another")


def test_the_context_applies_to_all_threads_and_none_removes_it() -> None:
    about(round=7)
    lines: list[str] = []
    thread = threading.Thread(target=lambda: lines.append(human(record("x"))))
    thread.start()
    thread.join()
    assert lines == ["WARNING x [round=7]"]
    about(round=None)
    assert human(record("x")) == "WARNING x"


@pytest.mark.parametrize("format", [HumanFormat(), JsonFormat()])
def test_text_from_a_device_cannot_start_a_line(format: logging.Formatter) -> None:
    line = format.format(record("refused: %s", HOSTILE, device=HOSTILE))
    assert len(line.splitlines()) == 1
    assert line.isprintable()


def test_hostile_text_stays_readable() -> None:
    reported = human(record("%s", HOSTILE))
    assert reported == (r"WARNING no\r\n14:00:00 ERROR all is lost\x1b[2J\u2028\u202eneti\x00\x85")
    assert human(record("%s", "grün ✓")) == "WARNING grün ✓"


def test_a_traceback_is_indented_and_cannot_forge_lines() -> None:
    first, *rest = HumanFormat().format(record("broke", exc_info=raised(HOSTILE))).splitlines()
    assert first.endswith(" WARNING broke")
    assert rest
    assert all(line.startswith("    | ") and line.isprintable() for line in rest)
    assert any("ERROR all is lost" in line for line in rest)


def test_a_traceback_is_part_of_the_json_object() -> None:
    line = JsonFormat().format(record("broke", exc_info=raised("on line\none")))
    reported = json.loads(line)
    assert len(line.splitlines()) == 1
    assert reported["exception"].endswith("ValueError: on line\none")


def test_a_long_line_is_truncated() -> None:
    assert len(JsonFormat().format(record("%s", "x" * 100_000))) < 10_000
