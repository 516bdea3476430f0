"""Tables of commands: whole lines for programs, wrapped ones in a terminal."""

import os
import sys

import pytest

from edge_client.system.plain_text import print_table
from edge_server.cli.main import main


def in_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((columns, 24)))


@pytest.mark.parametrize("columns", [80, 120])
def test_the_recipes_fit_a_terminal(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    in_terminal(monkeypatch, columns)
    assert main(["recipes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    # Names are not broken.
    assert any(line.startswith("attending-adafl-scaffold  ") for line in lines)


def test_only_the_widest_columns_are_wrapped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [("one", "a text of several words", "another text of words"), ("two", "short", "")]
    print_table(("a", "b", "c"), rows)
    assert capsys.readouterr().out.splitlines()[1] == "one  a text of several words  another text of words"
    in_terminal(monkeypatch, 31)
    print_table(("a", "b", "c"), rows)
    assert capsys.readouterr().out.splitlines() == [
        "a    b             c",
        "one  a text of     another text",
        "     several       of words",
        "     words",
        "two  short",
    ]
