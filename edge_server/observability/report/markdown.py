"""A report as Markdown that GitHub renders; what comes from outside can make neither markup nor columns."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from html import escape

from edge_server.config.units import clean
from edge_server.observability.report.charts import Chart, Series
from edge_server.observability.report.document import (
    SHOWN_ROWS,
    Block,
    Card,
    Code,
    Curves,
    Document,
    FactList,
    Paragraph,
    Picture,
    Section,
    Table,
)
from edge_server.observability.terminal.sparkline import BLOCKS
from edge_server.observability.terminal.sparkline import sparkline as drawn

MOST_BLOCKS = 32
"""Letters of a curve in a table's cell."""
CURVE_COLUMNS = ("curve", "first", "last", "lowest", "highest", "over the rounds")


def markdown_page(document: Document) -> str:
    """The whole text; it ends with a line feed."""
    detail = f" {plain(document.detail)}" if document.detail else ""
    parts = [
        f"# {plain(document.name)}",
        f"**{plain(document.outcome)}**{detail}",
        _facts(document.facts),
        *(part for section in document.sections for part in _section(section)),
    ]
    return "\n\n".join(parts) + "\n"


def plain(text: str) -> str:
    """Text that is read as it is: on one line, nothing in it is Markdown or HTML."""
    return re.sub(r"([\\`*_{}\[\]<>#|&~!^$@])", r"\\\1", clean(text)).strip()


def markdown_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: Container[int] = (0,)
) -> str:
    """Cells that are Markdown already; all columns but those at `left` end at the right."""
    rule = ["---" if index in left else "---:" for index in range(len(columns))]
    lines = [columns, rule, *rows]
    return "\n".join(f"| {' | '.join(cell or ' ' for cell in line)} |" for line in lines)


def _section(section: Section) -> Iterator[str]:
    yield f"## {plain(section.title)}"
    yield from (markdown_block(block) for block in section.blocks)


def markdown_block(block: Block) -> str:
    """One block of the text."""
    match block:
        case Paragraph(text):
            return plain(text)
        case Picture(name, _):
            return f"![{plain(name)}]({name})"
        case FactList():
            return _facts(block)
        case Table():
            return _table(block)
        case Curves(charts):
            return "\n\n".join(map(_curves, charts))
        case Code(text, folded):
            return _folded(folded, _code(text)) if folded else _code(text)
        case Card(markdown):
            return re.sub(r"^(?=#)", "##", markdown, flags=re.MULTILINE).strip()


def _facts(facts: FactList) -> str:
    return markdown_table(("", ""), [(plain(name), plain(value)) for name, value in facts.rows], left=(0, 1))


def _table(made: Table) -> str:
    # One row more than are shown is not worth a sentence of its own.
    rows = made.rows if len(made.rows) <= SHOWN_ROWS + 1 else made.rows[:SHOWN_ROWS]
    cells = [
        [f"**{plain(cell.text)}**" if cell.alert and cell.text.strip() else plain(cell.text) for cell in row]
        for row in rows
    ]
    words = [index for index, cell in enumerate(made.rows[0]) if cell.words] if made.rows else []
    written = markdown_table([plain(name) for name in made.columns], cells, left=words)
    text = f"{plain(made.caption)}.\n\n{written}"
    left = len(made.rows) - len(rows)
    return f"{text}\n\n{left:,} more rows are in {made.rest}." if left else text


def _curves(chart: Chart) -> str:
    rows = [_curve(chart, series) for series in chart.series if series.known]
    if not rows:
        return f"{plain(chart.title)}: no values."
    return f"{plain(chart.title)}.\n\n{markdown_table(CURVE_COLUMNS, rows)}"


def _curve(chart: Chart, series: Series) -> tuple[str, ...]:
    values = [value for _, value in series.known]
    told = (values[0], values[-1], min(values), max(values))
    return (plain(series.label), *(plain(chart.text(value)) for value in told), sparkline(values))


def sparkline(values: Sequence[float]) -> str:
    """All of a curve in `MOST_BLOCKS` letters at most: evenly chosen values, the last one among them."""
    spacing = -(-len(values) // MOST_BLOCKS)
    chosen = values[::-1][::spacing][::-1]
    return drawn(chosen, most=len(chosen)) if len(chosen) > 1 else BLOCKS[3]


def _code(text: str) -> str:
    """A block that no run of backticks in it can end."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text.rstrip()}\n{fence}"


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{escape(title)}</summary>\n\n{content}\n\n</details>"
