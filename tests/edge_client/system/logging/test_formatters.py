"""A line per record, with what it is about; what devices say forges none."""

import json
import logging
import sys
import threading
from typing import Any

import pytest

from edge_client.system.logging.context import about
from edge_client.system.logging.formatters import HumanFormat, JsonFormat

HOSTILE = "no\r\n14:00:00 ERROR all is lost\x1b[2J\u2028\u202eneti\x00\x85"
"""A line of its own, in the eyes of a terminal, a browser and str.splitlines."""


def record(message: str = "%s is late", *args: Any, exc_info: Any = None, **facts: Any) -> logging.LogRecord:
    made = logging.LogRecord("edge_server.x", logging.WARNING, __file__, 1, message, args, exc_info)
    made.created = 1_700_000_000.25
    for name, value in facts.items():
        setattr(made, name, value)
    return made


def human(one: logging.LogRecord) -> str:
    return HumanFormat().format(one).partition(" ")[2]


def raised(text: str) -> Any:
    try:
        raise ValueError(text)
    except ValueError:
        return sys.exc_info()


def test_a_line_for_people_ends_with_what_it_is_about() -> None:
    about(federation="home", run="r1", round=3)
    line = human(record("%s is late", "pi-3", device="pi-3", reason="stale-round"))
    assert line == ("WARNING pi-3 is late [federation=home run=r1 round=3 device=pi-3 reason=stale-round]")


def test_a_line_about_nothing_in_particular_is_its_words() -> None:
    assert human(record("all is well")) == "WARNING all is well"


def test_a_line_for_programs_is_an_object_of_one_line() -> None:
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


def test_what_a_line_says_itself_wins() -> None:
    about(round=3, device="this-one")
    reported = json.loads(JsonFormat().format(record("x", round=2, device="another")))
    assert (reported["round"], reported["device"]) == (2, "another")


def test_other_threads_say_it_too_and_none_takes_it_away() -> None:
    about(round=7)
    said: list[str] = []
    thread = threading.Thread(target=lambda: said.append(human(record("x"))))
    thread.start()
    thread.join()
    assert said == ["WARNING x [round=7]"]
    about(round=None)
    assert human(record("x")) == "WARNING x"


@pytest.mark.parametrize("format", [HumanFormat(), JsonFormat()])
def test_words_of_a_device_make_no_line_of_their_own(format: logging.Formatter) -> None:
    line = format.format(record("refused: %s", HOSTILE, device=HOSTILE))
    assert len(line.splitlines()) == 1
    assert line.isprintable()


def test_hostile_words_are_still_to_be_read() -> None:
    reported = human(record("%s", HOSTILE))
    assert reported == (r"WARNING no\r\n14:00:00 ERROR all is lost\x1b[2J\u2028\u202eneti\x00\x85")
    assert human(record("%s", "grün ✓")) == "WARNING grün ✓"


def test_a_traceback_is_set_in_and_its_words_forge_nothing() -> None:
    first, *rest = HumanFormat().format(record("broke", exc_info=raised(HOSTILE))).splitlines()
    assert first.endswith(" WARNING broke")
    assert rest
    assert all(line.startswith("    | ") and line.isprintable() for line in rest)
    assert any("ERROR all is lost" in line for line in rest)


def test_a_traceback_for_programs_is_part_of_the_object() -> None:
    line = JsonFormat().format(record("broke", exc_info=raised("on line\none")))
    reported = json.loads(line)
    assert len(line.splitlines()) == 1
    assert reported["exception"].endswith("ValueError: on line\none")


def test_a_long_line_is_cut() -> None:
    assert len(JsonFormat().format(record("%s", "x" * 100_000))) < 10_000
