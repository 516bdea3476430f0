"""Numbers and names formatted for people."""

from collections.abc import Callable
from typing import Any

import pytest

from edge_server.config import units
from edge_server.observability.report.markdown import sparkline
from tests.edge_server.observability.terminal.shown import snapshot, view


@pytest.mark.parametrize(
    ("write", "value", "text"),
    [
        (units.bytes_text, 0, "0 B"),
        (units.bytes_text, 999, "999 B"),
        (units.bytes_text, 999_499, "999 kB"),
        (units.bytes_text, 999_600, "1 MB"),
        (units.bytes_text, 6_653_480, "6.65 MB"),
        (units.bytes_text, 2e18, "2,000 PB"),
        (units.bytes_text, None, "-"),
        (units.si_text, 43_201_000, "43.2 M"),
        (units.si_text, 12, "12"),
        (units.count_text, 1_663_370, "1,663,370"),
        (units.count_text, None, "-"),
        (units.number_text, 12.345, "12.3"),
        (units.number_text, 1234.5, "1,234"),
        (units.number_text, 1e9, "1e+09"),
        (units.percent_text, 0.97123, "97.12%"),
        (units.percent_text, None, "-"),
        (units.loss_text, 0.4321, "0.432"),
        (units.loss_text, 1e9, "1.00e+09"),
        (units.duration_text, 4.21, "4.2 s"),
        (units.duration_text, 59.97, "1 min 00 s"),
        (units.duration_text, 65.2, "1 min 05 s"),
        (units.duration_text, 7380, "2 h 03 min"),
        (units.clock_text, -1, "0:00"),
        (units.clock_text, 65.9, "1:05"),
        (units.clock_text, 3723, "1:02:03"),
    ],
)
def test_numbers_are_formatted_with_units(write: Callable[[Any], str], value: object, text: str) -> None:
    assert write(value) == text


def test_a_long_list_of_names_is_shortened() -> None:
    assert units.names_text(["a", "b", "c", "d"], most=2) == "a, b and 2 more"


def test_control_characters_from_elsewhere_do_not_reach_the_terminal() -> None:
    assert units.clean("lost\x1b[31m\nnow") == "lost [31m now"
    assert "\x1b" not in "\n".join(view(snapshot(notes=("a\x1b[2Jb",))))


def test_a_sparkline_spans_its_own_values() -> None:
    assert sparkline([0.0, 0.5, 1.0]) == "▁▅█"
    assert sparkline([0.3, 0.3]) == "▄▄"
    assert sparkline([]) == ""
    assert sparkline([0.0, 1.0], ascii_only=True) == "_#"
