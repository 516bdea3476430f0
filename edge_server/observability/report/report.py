"""The report on one run or several, as HTML, Markdown or JSON."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from edge_client.storage.atomic_files import write_synced
from edge_server.config.units import UNKNOWN, bytes_text, count_text, duration_text
from edge_server.observability.figures import measured_figures, measured_name, naive_figures
from edge_server.observability.report import document as doc
from edge_server.observability.report.comparison import runs_document
from edge_server.observability.report.contents import RunContents, read_run_contents
from edge_server.observability.report.html_page import html_page
from edge_server.observability.report.markdown import markdown_page
from edge_server.observability.report.sections import run_sections
from edge_server.observability.terminal.tables import epsilon_text
from edge_server.storage import records, run_folder
from schemas.base import fields_of
from schemas.errors import ConfigError
from schemas.selectors import EVERY, Where

NAME, MARKDOWN = "report.html", "report.md"


def write_report(directory: Path) -> Path:
    """Write both pages into a run folder and return the path of `report.html`.

    Raises `ConfigError` naming the file that is missing, broken or not writable.
    """
    document = run_document(read_run_contents(directory))
    write_text(directory / MARKDOWN, markdown_page(document))
    return write_text(directory / NAME, html_page(document))


def write_text(path: Path, text: str) -> Path:
    """Write a file atomically; raises `ConfigError` where it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_synced(path, text.encode())
    except OSError as error:
        raise ConfigError(f"cannot be written: {error}", place=path) from error
    return path


def run_document(run: RunContents) -> doc.Document:
    summary = run.summary
    return doc.Document(
        title=f"{summary.federation}, run {run_folder.run_title(run.folder, summary.run)}",
        name=summary.federation,
        outcome=summary.outcome,
        detail=summary.detail,
        good=summary.outcome == "finished",
        facts=doc.FactList((*_facts(summary, run_folder.run_title(run.folder, summary.run)), *_chosen(run))),
        sections=run_sections(run),
    )


def _chosen(run: RunContents) -> tuple[tuple[str, str], ...]:
    """Which devices the tables of tiers and devices are about, if not about all."""
    if run.where == EVERY:
        return ()
    return (("tiers and devices", f"{len(run.devices)} of {len(run.summary.devices)}, where {run.where}"),)


def _facts(summary: records.Summary, title: str) -> tuple[tuple[str, str], ...]:
    last, best = measured_figures(summary)
    measured = () if UNKNOWN == last == best else (last + (f", best {best}" if best else ""),)
    return (
        ("run", title),
        *((("id", summary.run),) if summary.run != title else ()),
        ("recipe", summary.recipe or "none"),
        ("model", f"{summary.model}, {count_text(summary.parameters)} parameters"),
        *_training_rows(summary.trained),
        ("rounds", count_text(summary.rounds)),
        ("devices", count_text(len(summary.devices))),
        ("duration", duration_text(summary.duration_s)),
        *((measured_name(summary), text) for text in measured),
        *([("naive forecasts", naive)] if (naive := naive_figures(summary)) else []),
        ("sent by the server", bytes_text(summary.downlink_bytes)),
        ("received by the server", bytes_text(summary.uplink_bytes)),
        *([("privacy spent", epsilon_text(summary))] if summary.epsilon is not None else []),
    )


def _training_rows(share: records.TrainedShare | None) -> tuple[tuple[str, str], ...]:
    """What devices train of the network, and what is frozen; nothing if they train everything."""
    rows = (("trained", share.in_words()), ("frozen", share.describe_frozen())) if share else ()
    return tuple(row for row in rows if row[1])


SUFFIXES = {"html": ".html", "markdown": ".md", "json": ".json"}


def publish_report(
    runs: Sequence[Path], *, form: str | None = None, out: Path | None = None, where: Where = EVERY
) -> tuple[Any, list[Path]]:
    """Write the HTML and the Markdown page, or only `form`; returns a value to print, if any, and the files.

    The pages of one run go into its folder, those of several into the current one, unless `out` names the
    file. The tables of tiers and devices are about the devices that `where` chooses. Raises `ConfigError` for
    a folder without a run and for a file that cannot be written.
    """
    if where != EVERY and (len(runs) > 1 or (out is None and form != "json")):
        raise ConfigError(
            "a report on some devices of one run",
            key=f"--where {where}",
            remedy="name its file with --out, so that the report on all of them stays",
        )
    if form is None and out is not None:
        form = next((name for name, suffix in SUFFIXES.items() if out.suffix == suffix), None)
        if form is None:
            raise ConfigError(
                "the name must end in .html, .md or .json, or else give --format", key=f"--out {out}"
            )
    contents = [replace(read_run_contents(run), where=where) for run in runs]
    if where != EVERY and not contents[0].devices:
        raise ConfigError("no device of the run matches", key=f"--where '{where}'")
    document = run_document(contents[0]) if len(runs) == 1 else runs_document(contents)
    if form == "json" and out is None:
        return report_value(document), []
    stem = runs[0] / "report" if len(runs) == 1 else Path("compare")
    forms = [form] if form else ["html", "markdown"]
    return None, [
        write_text(out or stem.with_suffix(SUFFIXES[name]), _text(document, name)) for name in forms
    ]


def _text(document: doc.Document, form: str) -> str:
    if form == "json":
        return json.dumps(report_value(document), indent=2) + "\n"
    return html_page(document) if form == "html" else markdown_page(document)


def report_value(document: doc.Document) -> dict[str, Any]:
    """The report as a JSON value: sections by title, tables as lists of rows, curves as points."""
    return {
        **fields_of(document, "title", "outcome", "detail"),
        "facts": dict(document.facts.rows),
        "sections": {section.title: _blocks(section) for section in document.sections},
    }


def _blocks(section: doc.Section) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for block in section.blocks:
        match block:
            case doc.FactList(facts):
                found.append({"facts": dict(facts)})
            case doc.Table():
                texts = ((cell.text for cell in row) for row in block.rows)
                rows = [dict(zip(block.columns, row, strict=True)) for row in texts]
                found.append({"table": block.caption, "rows": rows})
            case doc.Curves(charts):
                for chart in charts:
                    curves = {line.label: [list(point) for point in line.points] for line in chart.series}
                    found.append({"chart": chart.title, "curves": curves})
            case doc.Code(text, _):
                found.append({"code": text})
            case doc.Paragraph(text):
                found.append({"text": text})
            case doc.Card(markdown):
                found.append({"markdown": markdown})
            case doc.Picture(name, _):
                found.append({"picture": name})
    return found
