"""Writes deploy/llms.txt: every page of the documentation with one line about its content.

The form is that of llmstxt.org: a title, a summary, lists of links. After a page was added, or its first
sentence has changed: `make contents`.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILE = ROOT / "deploy" / "llms.txt"
SUMMARY = (
    "Federated learning for unlike devices over one MQTT broker: each device trains its own compact network, "
    "pruned to its capability, and serves it as ONNX. Python 3.11 or newer; two commands, `edge-server` and "
    "`edge-client`, whose `--help` teaches."
)
SECTIONS = {
    "Start": ("README.md", "deploy/docs", "deploy/examples/README.md"),
    "Devices": ("edge_client",),
    "Server": ("edge_server",),
    "Contract": ("schemas",),
    "Deployment and promises": ("deploy",),
    "Development": ("CONTRIBUTING.md", "CHANGELOG.md", "tests"),
}
"""Sections with their files, and folders whose remaining pages they list."""


def contents() -> str:
    """The text of the file."""
    listed: set[Path] = set()
    parts = ["# Edge federation", f"> {SUMMARY}"]
    for title, places in SECTIONS.items():
        found = [page for place in places for page in _pages(ROOT / place) if page not in listed]
        listed.update(found)
        parts.append(f"## {title}\n\n" + "\n".join(map(_line, found)))
    return "\n\n".join(parts) + "\n"


def _pages(place: Path) -> list[Path]:
    """A page, or all pages of a folder: its own first, then those of its sub-folders."""
    if place.is_file():
        return [place]
    found = [page for page in place.rglob("*.md") if not _is_made(page)]
    return sorted(found, key=lambda page: (len(page.parts), page.name != "README.md", page))


def _is_made(page: Path) -> bool:
    """Generated tables are omitted; the page in their folder links to them."""
    if page.is_relative_to(ROOT / "deploy" / "docs" / "reference"):
        return page.name != "index.md"
    pages = (ROOT / "deploy" / "docs", ROOT / "deploy" / "boards")
    return page.name != "README.md" and not any(page.is_relative_to(folder) for folder in pages)


def _line(page: Path) -> str:
    text = page.read_text(encoding="utf-8")
    title = next(line.removeprefix("# ") for line in text.split("\n") if line.startswith("# "))
    about = _first_sentence(text.partition("\n")[2])
    return f"- [{title.strip()}]({_relative(page)})" + (f": {about}" if about else "")


def _relative(page: Path) -> str:
    inside = page.relative_to(ROOT)
    return str(inside.relative_to("deploy")) if inside.parts[0] == "deploy" else f"../{inside}"


def _first_sentence(text: str) -> str:
    """The first sentence below the title, or nothing if a list or a table follows."""
    paragraph = re.split(r"\n\s*\n", text.strip("\n"))[0]
    if not re.match(r"[A-Za-z`]", paragraph):
        return ""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraph.split())).replace("**", "")
    return re.split(r"(?<=[.:])\s", plain)[0].rstrip(":")


if __name__ == "__main__":
    FILE.write_text(contents(), encoding="utf-8")
