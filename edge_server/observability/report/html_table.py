"""An accessible HTML table with a caption, column heads and row heads."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True)
class Cell:
    """A cell's unescaped text; a number unless `words`, highlighted with `alert`."""

    text: str
    words: bool = False
    alert: bool = False


def html_table(caption: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """The table in a box that scrolls horizontally; on narrow pages each row is a list of named cells."""
    words = [cell.words for cell in rows[0]] if rows else [False] * len(columns)
    heads = "".join(
        f'<th scope="col"{_kinds(Cell(name, words=is_words))}>{escape(name)}</th>'
        for name, is_words in zip(columns, words, strict=True)
    )
    body = "\n".join(
        f"<tr>{_head(row[0], columns[0])}{''.join(map(_data, row[1:], columns[1:]))}</tr>" for row in rows
    )
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption>\n<thead><tr>{heads}</tr></thead>\n"
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def _head(cell: Cell, column: str) -> str:
    return f'<th scope="row"{_kinds(cell)} data-head="{escape(column)}">{escape(cell.text)}</th>'


def _data(cell: Cell, column: str) -> str:
    return f'<td{_kinds(cell)} data-head="{escape(column)}">{escape(cell.text)}</td>'


def _kinds(cell: Cell) -> str:
    kinds = [name for name, holds in (("words", cell.words), ("alert", cell.alert)) if holds]
    return f' class="{" ".join(kinds)}"' if kinds else ""
