"""Files, folders and modules that pages name in backticks exist."""

import re
from fnmatch import fnmatch
from functools import cache
from importlib import import_module, util
from pathlib import Path

import pytest

from tests.deploy.pages import ROOT

PACKAGES = ("edge_client", "edge_server", "schemas", "tests")
PLACES = (*PACKAGES, "deploy")
EXAMPLES = {
    "connection_log.py",
    "commands/clean.py",
    "commands/prune_runs.py",
    "config/opc_ua.py",
    "lenet.py",
    "mynet.py",
    "dist/uPlot.esm.js",
    "dist/uPlot.min.css",
}
"""Files that a reader would add, and those of other packages."""
PAGES = [
    ROOT / "CONTRIBUTING.md",
    *sorted(page for place in PLACES for page in (ROOT / place).rglob("*.md") if "_build" not in page.parts),
]
SOURCE = re.compile(r"[\w./*-]+\.(?:py|js|css)")
FOLDER = re.compile(r"\w+(?:/\w+)+/?")
DOTTED = re.compile(r"(?:edge_client|edge_server|schemas|tests|deploy)(?:\.\w+)+")


def named(page: Path) -> list[str]:
    """What stands in backticks outside of blocks."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`\n]+)`", text)


@cache
def files(folder: Path) -> tuple[str, ...]:
    """The paths of all files of a folder, each after a slash."""
    return tuple(
        f"/{path.relative_to(folder)}" for path in folder.rglob("*") if "__pycache__" not in path.parts
    )


def bases(page: Path) -> list[Path]:
    """The folders from which a page may name a path: its own, those above it, the packages."""
    own = page.parent.relative_to(ROOT)
    return [ROOT / str(folder) for folder in (own, *own.parents, *PACKAGES)]


def is_there(name: str, page: Path) -> bool:
    """Whether a file or folder has this path, or in the page's room a path that ends so."""
    room = ROOT.joinpath(*page.relative_to(ROOT).parts[:2]) if page.name == "README.md" else ROOT
    room = room if room.is_dir() else page.parent
    exists = any((base / name).exists() for base in bases(page))
    return exists or any(fnmatch(path, f"*/{name}") for path in files(room))


def is_importable(name: str) -> bool:
    """Whether a dotted name is a module, or an attribute of one."""
    if name in PLACES:
        return True
    parent, _, last = name.rpartition(".")
    try:
        return hasattr(import_module(parent), last) or util.find_spec(name) is not None
    except ModuleNotFoundError:  # an attribute of an attribute
        module, _, owner = parent.rpartition(".")
        return bool(module) and is_importable(parent) and hasattr(getattr(import_module(module), owner), last)


def missing(page: Path) -> list[str]:
    """The names on the page of which there is nothing."""
    found = []
    for name in dict.fromkeys(named(page)):
        first = name.split("/")[0]
        # Folders of `runs/` are what commands write.
        folder = FOLDER.fullmatch(name) and first != "runs" and any((b / first).is_dir() for b in bases(page))
        if SOURCE.fullmatch(name) or folder:
            found += [] if name in EXAMPLES or is_there(name, page) else [name]
        elif DOTTED.fullmatch(name):
            found += [] if is_importable(name) else [name]
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_exists(page: Path) -> None:
    assert missing(page) == []
