"""The report on a run, written to its folder as an HTML page and as Markdown."""

from pathlib import Path

from edge_client.storage.atomic_files import write_synced
from edge_server.config.units import UNKNOWN, bytes_text, count_text, duration_text
from edge_server.observability.figures import measured_figures, measured_name, naive_figures
from edge_server.observability.report.contents import RunContents, read_run_contents
from edge_server.observability.report.document import Document, FactList
from edge_server.observability.report.html_page import html_page
from edge_server.observability.report.markdown import markdown_page
from edge_server.observability.report.sections import run_sections
from edge_server.observability.terminal.tables import epsilon_text
from edge_server.storage.records import Summary
from edge_server.storage.run_folder import run_title
from schemas.errors import ConfigError
from schemas.labels import EVERY

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
        raise ConfigError(f"{path}: cannot be written: {error}") from error
    return path


def run_document(run: RunContents) -> Document:
    summary = run.summary
    return Document(
        title=f"{summary.federation}, run {run_title(run.folder, summary.run)}",
        name=summary.federation,
        outcome=summary.outcome,
        detail=summary.detail,
        good=summary.outcome == "finished",
        facts=FactList((*_facts(summary, run_title(run.folder, summary.run)), *_chosen(run))),
        sections=run_sections(run),
    )


def _chosen(run: RunContents) -> tuple[tuple[str, str], ...]:
    """Which devices the tables of tiers and devices are about, if not about all."""
    if run.where == EVERY:
        return ()
    return (("tiers and devices", f"{len(run.devices)} of {len(run.summary.devices)}, where {run.where}"),)


def _facts(summary: Summary, title: str) -> tuple[tuple[str, str], ...]:
    last, best = measured_figures(summary)
    measured = () if UNKNOWN == last == best else (last + (f", best {best}" if best else ""),)
    return (
        ("run", title),
        *((("id", summary.run),) if summary.run != title else ()),
        ("recipe", summary.recipe or "none"),
        ("model", f"{summary.model}, {count_text(summary.parameters)} parameters"),
        ("rounds", count_text(summary.rounds)),
        ("devices", count_text(len(summary.devices))),
        ("duration", duration_text(summary.duration_s)),
        *((measured_name(summary), text) for text in measured),
        *([("naive forecasts", naive)] if (naive := naive_figures(summary)) else []),
        ("sent by the server", bytes_text(summary.downlink_bytes)),
        ("received by the server", bytes_text(summary.uplink_bytes)),
        *([("privacy spent", epsilon_text(summary))] if summary.epsilon is not None else []),
    )
