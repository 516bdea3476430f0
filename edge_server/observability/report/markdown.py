"""A report as GitHub Markdown; texts are escaped, so that they can contain neither markup nor columns."""

import re
from collections.abc import Container, Iterator, Sequence
from html import escape

from edge_server.config.units import clean
from edge_server.observability.report import document as doc
from edge_server.observability.report.charts import Chart, Series

BLOCKS = "▁▂▃▄▅▆▇█"
LETTERS = "_.-=+*%#"


def sparkline(values: Sequence[float], *, most: int = 32, ascii_only: bool = False) -> str:
    """The last `most` values, scaled to their own range."""
    levels = LETTERS if ascii_only else BLOCKS
    shown = values[-most:]
    if not shown:
        return ""
    lowest, span = min(shown), max(shown) - min(shown)
    return "".join(levels[_level(value - lowest, span)] for value in shown)


def _level(above: float, span: float) -> int:
    """A level from 0 to 7; a flat curve is drawn in the middle."""
    return round(7 * above / span) if span > 0 else 3


MAX_BLOCKS = 32  # Maximum characters of a curve in a table cell
CURVE_COLUMNS = ("curve", "first", "last", "lowest", "highest", "over the rounds")


def markdown_page(document: doc.Document) -> str:
    """The whole page, ending with a line feed."""
    detail = f" {plain(document.detail)}" if document.detail else ""
    parts = [
        f"# {plain(document.name)}",
        f"**{plain(document.outcome)}**{detail}",
        _facts(document.facts),
        *(part for section in document.sections for part in _section(section)),
    ]
    return "\n\n".join(parts) + "\n"


def plain(text: str) -> str:
    """The text on one line, with Markdown and HTML escaped."""
    return re.sub(r"([\\`*_{}\[\]<>#|&~!^$@])", r"\\\1", clean(text)).strip()


def markdown_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: Container[int] = (0,)
) -> str:
    """A table of Markdown cells; columns other than those at `left` are right-aligned."""
    rule = ["---" if index in left else "---:" for index in range(len(columns))]
    lines = [columns, rule, *rows]
    return "\n".join(f"| {' | '.join(cell or ' ' for cell in line)} |" for line in lines)


def _section(section: doc.Section) -> Iterator[str]:
    yield f"## {plain(section.title)}"
    yield from (markdown_block(block) for block in section.blocks)


def markdown_block(block: doc.Block) -> str:
    match block:
        case doc.Paragraph(text):
            return plain(text)
        case doc.Picture(name, _):
            return f"![{plain(name)}]({name})"
        case doc.FactList():
            return _facts(block)
        case doc.Table():
            return _table(block)
        case doc.Curves(charts):
            return "\n\n".join(map(_curves, charts))
        case doc.Sweep(charts):
            drawn = ", ".join(plain(chart.title) for chart in charts)
            return f"The HTML page draws this: {drawn}."
        case doc.Code(text, folded):
            summary = f"<details><summary>{escape(folded)}</summary>\n\n"
            return f"{summary}{_code(text)}\n\n</details>" if folded else _code(text)
        case doc.Card(markdown):
            return re.sub(r"^(?=#)", "##", markdown, flags=re.MULTILINE).strip()


def _facts(facts: doc.FactList) -> str:
    return markdown_table(("", ""), [(plain(name), plain(value)) for name, value in facts.rows], left=(0, 1))


def _table(made: doc.Table) -> str:
    # A single further row is shown instead of a sentence about it.
    rows = made.rows if len(made.rows) <= doc.SHOWN_ROWS + 1 else made.rows[: doc.SHOWN_ROWS]
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
    rows = [_curve(chart, series) for series in chart.series if series.known_points]
    if not rows:
        return f"{plain(chart.title)}: no values."
    return f"{plain(chart.title)}.\n\n{markdown_table(CURVE_COLUMNS, rows)}"


def _curve(chart: Chart, series: Series) -> tuple[str, ...]:
    values = [value for _, value in series.known_points]
    figures = (values[0], values[-1], min(values), max(values))
    return (plain(series.label), *(plain(chart.text(value)) for value in figures), thinned_sparkline(values))


def thinned_sparkline(values: Sequence[float]) -> str:
    """A sparkline of at most `MAX_BLOCKS` evenly chosen values, including the last one."""
    spacing = -(-len(values) // MAX_BLOCKS)
    chosen = values[::-1][::spacing][::-1]
    return sparkline(chosen, most=len(chosen)) if len(chosen) > 1 else BLOCKS[3]


def _code(text: str) -> str:
    """A code block whose fence is longer than any sequence of backticks in it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text.rstrip()}\n{fence}"
