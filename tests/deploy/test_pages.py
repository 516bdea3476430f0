"""The guides' commands, run as printed on their pages."""

import os
import re
from pathlib import Path

import pytest

from deploy.docs.generator.pages import BY_HAND, REFERENCE, pages
from edge_server.transport.broker.launch import find_mosquitto
from tests.deploy.pages import DOCS, ROOT, commands, matches, run_commands, write_files

PAGES = sorted(page for page in [ROOT / "README.md", *DOCS.rglob("*.md")] if commands(page))
NOT_DOCUMENTATION = {".venv", ".arm64", "runs", "_build"}
EVERY_PAGE = sorted(
    page for page in ROOT.rglob("*.md") if not NOT_DOCUMENTATION & set(page.relative_to(ROOT).parts)
)
QUICK = {"devices.md"}
ALL = os.environ.get("TRY_DOCS") == "all"


@pytest.mark.timeout(400)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_pages_commands_print_the_output_on_the_page(page: Path, tmp_path: Path) -> None:
    if page.name not in QUICK and not ALL:
        pytest.skip("make try-docs runs every page")
    mosquitto = find_mosquitto()
    if mosquitto is None:
        pytest.skip("mosquitto is not installed")
    write_files(page, tmp_path)
    printed = run_commands(page, tmp_path, str(mosquitto))
    for (command, shown), text in zip(commands(page), printed, strict=True):
        assert matches(shown, text), f"$ {command}\nthe page shows:\n{shown}\nit prints:\n{text}"


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("", "", True),
        ("a\n", "a\n", True),
        ("a\n", "b\n", False),
        ("accuracy ...%\n", "accuracy 97.2%\n", True),
        ("accuracy 99.0% on 9\n", "accuracy 94.5% on 9\n", True),
        ("accuracy 99.0% on 9\n", "accuracy 66.7% on 9\n", False),
        ("...\nlast\n", "one\ntwo\nlast\n", True),
        ("first\n...\n", "first\n", True),
        ("first\n...\nlast\n", "first\nlast\n", True),
        ("first\n...\nlast\n", "first\nother\n", False),
    ],
)
def test_printed_and_shown_output_are_compared(shown: str, printed: str, same: bool) -> None:
    assert matches(shown, printed) is same


def test_a_backup_in_a_guide_names_its_passphrase() -> None:
    guides = "".join(page.read_text(encoding="utf-8") for page in (DOCS / "guides").rglob("*.md"))
    for words in re.findall(r"edge-server (?:backup|restore) [^`\n]+", guides):
        arguments = words.split()[2:]
        if arguments[0].isupper() or arguments[0].startswith("/"):
            assert "--passphrase-file" in arguments, words


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and MyST generate them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", EVERY_PAGE, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_is_valid(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith(("https://", "http://", "mailto:")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        assert not anchor or target.suffix != ".md" or anchor in anchors(target), link


def test_the_reference_pages_match_the_code() -> None:
    wanted = pages()
    found = {path for ending in ("*.md", "*.json") for path in REFERENCE.rglob(ending)} - BY_HAND
    assert found == set(wanted), "run `make reference` to update the pages"
    for path, text in wanted.items():
        assert path.read_text(encoding="utf-8") == text, f"run `make reference` to update {path.name}"


def test_every_guide_is_in_the_navigation_and_in_the_table_of_its_group() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    listed = re.findall(r"^:caption: (\w+)\n\n((?:guides/.+\n)+)", index, re.MULTILINE)
    groups = {group: re.findall(rf"\(guides/{group.lower()}/([\w-]+)\.md\)", index) for group, _ in listed}
    for group, entries in listed:
        assert entries.split() == [f"guides/{group.lower()}/{name}" for name in groups[group]]
    guides = sorted(page.relative_to(DOCS / "guides") for page in (DOCS / "guides").rglob("*.md"))
    assert guides == sorted(Path(group.lower(), f"{name}.md") for group in groups for name in groups[group])
