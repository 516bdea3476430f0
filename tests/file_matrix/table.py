"""The matrix as a page."""

from collections import Counter
from collections.abc import Sequence

from tests.file_matrix.cells import Cell, Result
from tests.file_matrix.programs import version_of
from tests.file_matrix.rows import PATHS, Row

WORDS = 70
"""Most characters of a message in a cell."""
GOOD = ("equal", "refused", "none")


def page_of(results: Sequence[Result], skipped: Sequence[tuple[Row, str]]) -> str:
    """The page: totals, and a line for each row."""
    files = sum(result.files for result in results)
    lines = [
        "# Files of others",
        "",
        f"{len(results)} kinds of files, {files} files by {len({result.row.writer for result in results})} "
        "writers, read by training, `infer` and `serve`, and compared with what was written or with another "
        "reader. Written by `make matrix`; [README](README.md) tells how.",
        "",
        *_totals(results),
        "",
        f"| kind of file | writer | files | {' | '.join(PATHS)} |",
        "| --- | --- | ---: | --- | --- | --- |",
        *(_line(result) for result in results),
    ]
    if skipped:
        lines += ["", "Not tried here:", "", *(f"- {row.kind}, {row.writer}: {why}" for row, why in skipped)]
    return "\n".join(lines) + "\n"


def faults_of(results: Sequence[Result]) -> list[str]:
    """A line for each cell that is neither equal nor refused on purpose."""
    return [
        f"{result.row.kind} | {result.row.writer} | {path}: {_words(cell, 300)}"
        for result in results
        for path, cell in result.cells.items()
        if cell.state not in GOOD
    ]


def _totals(results: Sequence[Result]) -> list[str]:
    states = ("equal", "refused", "unintended", "wrong")
    rows = ["| | equal | refused with remedy | refused, not intended | wrong |", "| --- |" + " ---: |" * 4]
    for path in PATHS:
        counts = Counter(result.cells[path].state for result in results)
        rows.append(f"| {path} | {' | '.join(str(counts[state]) for state in states)} |")
    return rows


def _line(result: Result) -> str:
    row = result.row
    writer = f"{row.writer} {version_of(row.writer)}".strip()
    cells = " | ".join(_words(result.cells[path], WORDS, row.intended.get(path, "")) for path in PATHS)
    return f"| {row.kind} | {writer} | {result.files} | {cells} |"


def _words(cell: Cell, most: int, remedy: str = "") -> str:
    """A cell in words: the beginning of a message, and the part of it that is the remedy."""
    text = " ".join(cell.words.replace("|", "/").split())
    text = text if len(text) <= most else text[: most - 3] + "..."
    match cell.state:
        case "none":
            return "-"
        case "equal":
            return "equal"
        case "refused":
            return f"refused: {text} ({remedy})"
        case "unintended":
            return f"UNINTENDED: {text}"
        case _:
            return f"WRONG: {text}"
