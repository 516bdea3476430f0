"""A report as one self-contained HTML page; all texts are escaped."""

import base64
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources

from markdown_it import MarkdownIt

from edge_server.observability.report import document as doc
from edge_server.observability.report.charts import line_chart
from edge_server.observability.report.parallel_axes import parallel_axes


def html_table(caption: str, columns: Sequence[str], rows: Sequence[Sequence[doc.Cell]]) -> str:
    """The table in a box that scrolls horizontally; on narrow pages each row is a list of named cells."""
    words = [cell.words for cell in rows[0]] if rows else [False] * len(columns)
    heads = "".join(
        f'<th scope="col"{_kinds(doc.Cell(name, words=is_words))}>{escape(name)}</th>'
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


def _head(cell: doc.Cell, column: str) -> str:
    return f'<th scope="row"{_kinds(cell)} data-head="{escape(column)}">{escape(cell.text)}</th>'


def _data(cell: doc.Cell, column: str) -> str:
    return f'<td{_kinds(cell)} data-head="{escape(column)}">{escape(cell.text)}</td>'


def _kinds(cell: doc.Cell) -> str:
    kinds = [name for name, holds in (("words", cell.words), ("alert", cell.alert)) if holds]
    return f' class="{" ".join(kinds)}"' if kinds else ""


MIN_MORE_ROWS = 10  # Minimum rows to fold away


def html_page(document: doc.Document) -> str:
    style = (
        resources.files("edge_server.observability.report").joinpath("report.css").read_text(encoding="utf-8")
    )
    sections = "\n".join(map(_section, document.sections))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(document.title)}</title>
<style>
{style}</style>
</head>
<body>
<main>
{_heading(document)}
{sections}
</main>
</body>
</html>
"""


def _heading(document: doc.Document) -> str:
    detail = f" <span>{escape(document.detail)}</span>" if document.detail else ""
    kind = "good" if document.good else "bad"
    return f"""<header>
<h1>{escape(document.name)}</h1>
<p class="outcome {kind}"><strong>{escape(document.outcome)}</strong>{detail}</p>
{_facts(document.facts)}
</header>"""


def _section(section: doc.Section) -> str:
    blocks = "\n".join(map(html_block, section.blocks))
    return f"<section><h2>{escape(section.title)}</h2>\n{blocks}</section>"


def html_block(block: doc.Block) -> str:
    match block:
        case doc.Paragraph(text):
            return f"<p>{escape(text)}</p>"
        case doc.Picture(name, data):
            coded = base64.b64encode(data).decode()
            return f'<figure><img alt="{escape(name)}" src="data:image/png;base64,{coded}"></figure>'
        case doc.FactList():
            return _facts(block)
        case doc.Table():
            return _table(block)
        case doc.Curves(charts):
            return _figures((chart.title, line_chart(chart)) for chart in charts)
        case doc.Sweep(charts):
            return _figures((chart.title, parallel_axes(chart)) for chart in charts)
        case doc.Code(text, folded):
            return _fold_content(folded, f"<pre><code>{escape(text)}</code></pre>")
        case doc.Card(markdown):
            # HTML in a card stays text.
            made = MarkdownIt("commonmark", {"html": False}).enable("table").render(markdown)
            return f'<div class="card">{made}</div>'


def _figures(drawn: Iterable[tuple[str, str]]) -> str:
    figures = (f"<figure><figcaption>{escape(title)}</figcaption>{svg}</figure>" for title, svg in drawn)
    return '<div class="charts">\n' + "\n".join(figures) + "\n</div>"


def _facts(facts: doc.FactList) -> str:
    pairs = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts.rows
    )
    return f'<dl class="facts">{pairs}</dl>'


def _table(made: doc.Table) -> str:
    """The first rows, and the rest folded below them."""
    if len(made.rows) <= doc.SHOWN_ROWS + MIN_MORE_ROWS:
        return html_table(made.caption, made.columns, made.rows)
    rest = made.rows[doc.SHOWN_ROWS :]
    head = html_table(made.caption, made.columns, made.rows[: doc.SHOWN_ROWS])
    return head + _fold_content(
        f"{len(rest):,} more", html_table(f"{made.caption}: the rest", made.columns, rest)
    )


def _fold_content(title: str, content: str) -> str:
    return f"<details><summary>{escape(title)}</summary>\n{content}</details>" if title else content
