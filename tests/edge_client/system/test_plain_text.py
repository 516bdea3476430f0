"""One filter for what is printed: commands print through `say`."""

import ast
from pathlib import Path

import pytest

from edge_client.system.plain_text import plain, say

ROOT = Path(__file__).parents[3]
FILES = [*ROOT.glob("edge_client/cli/**/*.py"), *ROOT.glob("edge_server/cli/**/*.py")]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("f\u00fcnf \u5668", "f\u00fcnf \u5668"),
        ("a\x1b[2J\x9b2J", r"a\x1b[2J\x9b2J"),
        ("\u202egnp.exe\u2066", r"\u202egnp.exe\u2066"),
        ("two\nlines", r"two\nlines"),
    ],
)
def test_control_characters_and_direction_marks_are_escaped(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_lines_and_tabs_stay_where_a_text_has_several(capsys: pytest.CaptureFixture[str]) -> None:
    say("a\tb\nc\rd\x1b[1A", 3, end="!\n")
    assert capsys.readouterr().out == "a\tb\nc\\rd\\x1b[1A 3!\n"


def test_commands_print_through_the_filter() -> None:
    assert FILES
    bare = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert bare == []
