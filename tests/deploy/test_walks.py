"""The packages' READMEs name existing functions and list every room."""

import re
from importlib import import_module
from operator import attrgetter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / package / "README.md" for package in ("edge_client", "edge_server")]
NAMED = sorted(
    {
        name
        for page in PAGES
        for name in re.findall(r"`((?:edge_\w+|schemas)[\w.]*:[\w.]+)`", page.read_text())
    }
)


@pytest.mark.parametrize("name", NAMED)
def test_a_function_that_a_walk_names_exists(name: str) -> None:
    module, _, attribute = name.partition(":")
    assert attrgetter(attribute)(import_module(module))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_every_room_has_a_page_and_is_listed(page: Path) -> None:
    rooms = {folder.name for folder in page.parent.iterdir() if (folder / "__init__.py").exists()}
    listed = set(re.findall(r"^\| \[(\w+)\]\(\1/README\.md\)", page.read_text(), re.MULTILINE))
    assert listed == rooms
    assert len(rooms) <= 12
    for room in rooms:
        assert (page.parent / room / "README.md").exists(), room
