"""Rows of options: what a value becomes, and what an error says of it."""

import argparse
from pathlib import Path
from typing import Any

import pytest

from edge_client.cli.main import EDGE_CLIENT
from edge_client.cli.options import (
    ABOVE_0,
    AT_LEAST_1,
    PORT,
    SHARE,
    Group,
    Option,
    bounds_text,
    device_name,
    share,
)
from edge_server.cli.main import EDGE_SERVER


def parsed(row: Option | Group, *words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False)
    row.add_to(parser)
    return parser.parse_args(words)


@pytest.mark.parametrize(
    ("option", "words", "value"),
    [
        (Option("--top", int, bounds=AT_LEAST_1), ("--top", "3"), 3),
        (Option("--rate", share, bounds=SHARE), ("--rate", "10%"), 0.1),
        (Option("--rate", share, bounds=SHARE), ("--rate", "0.25"), 0.25),
        (Option("--out", Path), ("--out", "x"), Path("x")),
        (Option("--once", bool), ("--once",), True),
        (Option("--once", bool), (), None),
        (Option("--telling", bool, default=True), ("--no-telling",), False),
        (Option("--label", default=(), many=True), ("--label", "a", "--label", "b"), ["a", "b"]),
        (Option("--label", default=(), many=True), (), []),
        (Option("words", default=(), nargs="*"), (), []),
        (Option("--listen", default=("127.0.0.1", None)), (), ("127.0.0.1", None)),
    ],
)
def test_a_value_becomes_what_its_row_says(option: Option, words: tuple[str, ...], value: Any) -> None:
    stated = getattr(parsed(option, *words), option.key)
    assert stated == value or (value is None and stated is False)


@pytest.mark.parametrize(
    ("option", "text", "said"),
    [
        (Option("--top", int), "x", "'x' is not a whole number"),
        (Option("--weight", float), "x", "'x' is not a number"),
        (Option("--weight", float), "nan", "'nan' is not a finite number"),
        (Option("--top", int, bounds=AT_LEAST_1), "0", "must be at least 1, not 0"),
        (Option("--weight", float, bounds=ABOVE_0), "0", "must be above 0, not 0"),
        (Option("--rate", share, bounds=SHARE), "120%", "must be between 0 and 1, not 120%"),
        (Option("--rate", share, bounds=SHARE), "x%", "'x' is not a number"),
        (Option("--port", int, bounds=PORT), "65536", "must be between 0 and 65535, not 65536"),
        (Option("--device", device_name), "a/b", "1 to 64 letters, digits"),
    ],
)
def test_an_error_says_what_a_value_must_be(option: Option, text: str, said: str) -> None:
    with pytest.raises(argparse.ArgumentError, match=said):
        parsed(option, option.name, text)


def test_bounds_are_said_in_words() -> None:
    assert bounds_text({"ge": 0, "lt": 0.5}) == "at least 0 and below 0.5"
    assert bounds_text({"gt": 0, "le": 2**40}) == "above 0 and at most 1099511627776"


def test_of_exclusive_options_one_may_be_stated() -> None:
    group = Group((Option("--every", float), Option("--id")), exclusive=True)
    assert parsed(group, "--every", "2").every == 2
    with pytest.raises(argparse.ArgumentError, match="not allowed with"):
        parsed(group, "--every", "2", "--id", "x")


def test_lists_of_one_command_line_are_not_those_of_the_next() -> None:
    option = Option("--label", default=(), many=True)
    parsed(option).label.append("a")
    assert parsed(option).label == []


@pytest.mark.parametrize("program", [EDGE_CLIENT, EDGE_SERVER], ids=["client", "server"])
def test_defaults_of_options_are_what_their_types_make(program) -> None:
    """A text as a default is parsed like a word of the command line; any other default is final."""

    def check(parser: argparse.ArgumentParser) -> None:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for verb in action.choices.values():
                    check(verb)
            elif isinstance(action.default, str) and action.default is not argparse.SUPPRESS:
                parser._get_value(action, action.default)

    check(program.parser())
