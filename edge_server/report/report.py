"""The report of a run: one self-contained HTML page beside the files that it is made from."""

from __future__ import annotations

from html import escape
from importlib import resources
from pathlib import Path

from edge_client.files import write_synced
from edge_server.display.tables import epsilon_text
from edge_server.display.units import bytes_text, count_text, duration_text, percent_text
from edge_server.history import Summary
from edge_server.report.curves import run_charts
from edge_server.report.run_files import RunFiles, read_run_files
from edge_server.report.sections import device_section, file_section, repeat_section, round_section
from schemas.errors import ConfigError

NAME = "report.html"


def write_report(directory: Path) -> Path:
    """Write `report.html` into a run folder and return its path.

    Raises `ConfigError` naming the file that is missing, broken or not writable.
    """
    page, path = report_page(read_run_files(directory)), directory / NAME
    try:
        write_synced(path, page.encode())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error}") from error
    return path


def report_page(run: RunFiles) -> str:
    """The whole page; everything that comes from the run is escaped."""
    title = escape(f"{run.summary.federation}, run {run.summary.run}")
    style = resources.files("edge_server.report").joinpath("report.css").read_text(encoding="utf-8")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<main>
{_heading(run.summary)}
{_charts(run)}
{device_section(run.summary)}
{round_section(run.history)}
{repeat_section()}
{file_section(run.federation_toml)}
</main>
</body>
</html>
"""


def _heading(summary: Summary) -> str:
    detail = f" <span>{escape(summary.detail)}</span>" if summary.detail else ""
    facts = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in _facts(summary))
    finished = "good" if summary.outcome == "finished" else "bad"
    return f"""<header>
<h1>{escape(summary.federation)}</h1>
<p class="outcome {finished}"><strong>{escape(summary.outcome)}</strong>{detail}</p>
<dl class="facts">{facts}</dl>
</header>"""


def _facts(summary: Summary) -> list[tuple[str, str]]:
    return [
        ("run", escape(summary.run)),
        ("recipe", escape(summary.recipe or "none")),
        ("model", f"{escape(summary.model)}, {count_text(summary.parameters)} parameters"),
        ("rounds", count_text(summary.rounds)),
        ("duration", duration_text(summary.duration_s)),
        (
            "test accuracy",
            f"{percent_text(summary.test_accuracy)}, best {percent_text(summary.best_accuracy)}",
        ),
        ("sent to devices", bytes_text(summary.downlink_bytes)),
        ("received from devices", bytes_text(summary.uplink_bytes)),
        *([("privacy spent", epsilon_text(summary))] if summary.epsilon is not None else []),
    ]


def _charts(run: RunFiles) -> str:
    figures = "\n".join(
        f"<figure><figcaption>{escape(title)}</figcaption>{svg}</figure>"
        for title, svg in run_charts(run.history)
    )
    return f'<section class="charts" aria-label="Curves">\n{figures}\n</section>'
