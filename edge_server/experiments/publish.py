"""The files of a comparison: results.json, table.md, table.csv, report.html."""

from __future__ import annotations

import base64
import json
from html import escape
from importlib import resources
from pathlib import Path

from edge_client.files import write_synced
from edge_server.experiments.cells import Plan
from edge_server.experiments.findings import Findings, Table, csv_text, markdown_table
from edge_server.experiments.machine import Provenance
from edge_server.report.html_table import Cell, html_table


def publish(plan: Plan, findings: Findings, out: Path, made: Provenance) -> None:
    """Write all of them into `out`, each whole."""
    files = {
        "results.json": results_json(plan, findings, made),
        "table.md": markdown(plan, findings, made),
        "table.csv": csv_text(findings.records),
        "report.html": page(plan, findings, out, made),
    }
    for name, text in files.items():
        write_synced(out / name, text.encode())


def results_json(plan: Plan, findings: Findings, made: Provenance) -> str:
    """Everything that was measured, and what it was measured with."""
    document = {
        "experiment": plan.experiment.title,
        "reproduces": plan.experiment.reproduces,
        "kind": plan.experiment.kind,
        "scale": plan.scale,
        "seeds": list(plan.seeds),
        "interrupted": findings.interrupted,
        "failures": list(findings.failures),
        "notes": list(findings.notes),
        "made": made.model_dump(),
        **findings.details,
    }
    return json.dumps(document, indent=2) + "\n"


def markdown(plan: Plan, findings: Findings, made: Provenance) -> str:
    """The tables with their notes and where they come from."""
    parts = [f"# {plan.experiment.title}", _heading(plan), *(f"- {note}" for note in _remarks(findings))]
    for table in findings.tables:
        parts += ["", f"## {table.caption}", "", markdown_table(table)]
    parts += [f"\n![{name}]({name})" for name in findings.pictures]
    return "\n".join([*parts, "", f"Made by `{made.command}` on {_origin(made)}.", ""])


def page(plan: Plan, findings: Findings, out: Path, made: Provenance) -> str:
    """One self-contained HTML page; every text is escaped, pictures are inside."""
    style = resources.files("edge_server.report").joinpath("report.css").read_text(encoding="utf-8")
    remarks = "".join(f"<li>{escape(note)}</li>" for note in _remarks(findings))
    tables = "\n".join(f"<section>{_html(table)}</section>" for table in findings.tables)
    pictures = "\n".join(_picture(out / name) for name in findings.pictures)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(plan.experiment.title)}</title>
<style>
{style}img {{ max-width: 100%; height: auto; background: #fff; }}
</style>
</head>
<body>
<main>
<header><h1>{escape(plan.experiment.title)}</h1>
<p>{escape(_heading(plan))}</p>
<ul>{remarks}</ul></header>
{tables}
{pictures}
<p>Made by <code>{escape(made.command)}</code> on {escape(_origin(made))}.</p>
</main>
</body>
</html>
"""


def _heading(plan: Plan) -> str:
    seeds = ", ".join(str(seed) for seed in plan.seeds)
    told = "" if plan.experiment.kind == "sizes" else f", seeds {seeds} (mean ± standard deviation)"
    return f"{plan.experiment.reproduces or 'Recipes compared'}. Scale {plan.scale}{told}.\n"


def _remarks(findings: Findings) -> list[str]:
    unfinished = ["Interrupted: runs are missing."] if findings.interrupted else []
    return [*unfinished, *(f"Failed: {failure}" for failure in findings.failures), *findings.notes]


def _origin(made: Provenance) -> str:
    parts = [
        made.date,
        f"commit {made.commit}" if made.commit else "no git checkout",
        f"{made.cpu}, {made.cores} cores",
        *([made.gpu] if made.gpu else []),
        f"Python {made.python}",
        *(f"{name} {version}" for name, version in made.versions.items()),
    ]
    return ", ".join(parts)


def _html(table: Table) -> str:
    rows = [
        [Cell(text, words=index == 0 or table.columns[index] == "note") for index, text in enumerate(row)]
        for row in table.rows
    ]
    return html_table(table.caption, table.columns, rows)


def _picture(path: Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    return f'<figure><img alt="{escape(path.stem)}" src="data:image/png;base64,{data}"></figure>'
