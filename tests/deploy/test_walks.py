"""The packages' READMEs name existing functions and list every subpackage."""

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
def test_a_function_named_in_a_readme_exists(name: str) -> None:
    module, _, attribute = name.partition(":")
    assert attrgetter(attribute)(import_module(module))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_every_subpackage_has_a_readme_and_is_listed(page: Path) -> None:
    subpackages = {folder.name for folder in page.parent.iterdir() if (folder / "__init__.py").exists()}
    listed = set(re.findall(r"^\| \[(\w+)\]\(\1/README\.md\)", page.read_text(), re.MULTILINE))
    assert listed == subpackages
    assert len(subpackages) <= 12
    for subpackage in subpackages:
        assert (page.parent / subpackage / "README.md").exists(), subpackage
