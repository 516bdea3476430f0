"""The files of a comparison: its page, tables, figures per seed, and the results of its ended runs."""

import json
from pathlib import Path

from edge_client.storage.atomic_files import write_synced
from edge_server.observability.report import contents, origin
from edge_server.observability.report.document import (
    Block,
    Cell,
    Code,
    Curves,
    Document,
    FactList,
    Paragraph,
    Picture,
    Section,
    Sweep,
    table,
    words,
)
from edge_server.observability.report.html_page import html_page
from edge_server.observability.report.markdown import markdown_page
from edge_server.simulation.experiments import cells
from edge_server.simulation.experiments.ended_runs import NAME as ENDED_RUNS
from edge_server.simulation.experiments.ended_runs import pack_runs
from edge_server.simulation.experiments.findings import Findings, Table, csv_text, markdown_table
from edge_server.storage.provenance import Provenance


def publish(plan: cells.Plan, findings: Findings, out: Path, made: Provenance) -> None:
    report = document(plan, findings, out, made)
    files = {
        "results.json": results_json(plan, findings, made),
        "table.md": markdown(plan, findings, made),
        "table.csv": csv_text(findings.records),
        "compare.html": html_page(report),
        "compare.md": markdown_page(report),
    }
    for name, text in files.items():
        write_synced(out / name, text.encode())
    if (packed := pack_runs(plan, out)) is not None:
        write_synced(out / ENDED_RUNS, packed)


def results_json(plan: cells.Plan, findings: Findings, made: Provenance) -> str:
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


def markdown(plan: cells.Plan, findings: Findings, made: Provenance) -> str:
    parts = [f"# {plan.experiment.title}", _heading(plan), *(f"- {note}" for note in _remarks(findings))]
    for shown in findings.tables:
        parts += ["", f"## {shown.caption}", "", markdown_table(shown)]
    parts += [f"\n![{name}]({name})" for name in findings.pictures]
    return "\n".join([*parts, "", f"Made by `{made.command}` on {_origin(made)}.", ""])


def document(plan: cells.Plan, findings: Findings, out: Path, made: Provenance) -> Document:
    """The comparison as a report: tables, curves, pictures, differing settings, the command to repeat it."""
    results = tuple(_results(made_table) for made_table in findings.tables)
    finished = not findings.interrupted and not findings.failures
    remarks = tuple(Paragraph(remark) for remark in _remarks(findings))
    curves = (Section("Curves", (Curves(findings.charts),)),) if findings.charts else ()
    drawn = () if findings.charts else findings.pictures
    pictures = tuple(Picture(name, (out / name).read_bytes()) for name in drawn)
    return Document(
        title=plan.experiment.title,
        name=plan.experiment.title,
        outcome="finished" if finished else "interrupted" if findings.interrupted else "with failures",
        detail="",
        good=finished,
        facts=FactList(_facts(plan, out, made)),
        sections=(
            Section("Results", (*remarks, *results)),
            *((Section("Settings", (Sweep(findings.sweeps),)),) if findings.sweeps else ()),
            *curves,
            *((Section("Pictures", pictures),) if pictures else ()),
            Section("What differs", (_differences(plan),)),
            Section("Repeat it", (Code(made.command), Paragraph(f"Made on {_origin(made)}."))),
        ),
    )


def _facts(plan: cells.Plan, out: Path, made: Provenance) -> tuple[tuple[str, str], ...]:
    seeds = ", ".join(map(str, plan.seeds))
    spread = () if plan.experiment.kind == "sizes" else (("seeds", f"{seeds} (mean ± standard deviation)"),)
    return (
        ("what", plan.experiment.reproduces or "recipes compared"),
        ("scale", plan.scale),
        *spread,
        ("codecs", _codecs(plan)),
        ("begun", _begun(plan, out, made)),
    )


def _begun(plan: cells.Plan, out: Path, made: Provenance) -> str:
    """The date on which the first run began, in this call or an earlier one."""
    runs = (contents.read_provenance(cells.run_path(run, out)) for run in plan.runs)
    return min([made.date, *(run.date for run in runs if run is not None)])


def _codecs(plan: cells.Plan) -> str:
    rows: dict[str, list[str]] = {}
    for cell in plan.cells:
        strategy = cell.config().strategy
        chains = (strategy.uplink or (), strategy.downlink or ())
        up, down = (", ".join(codec.name for codec in chain) or "float32" for chain in chains)
        rows.setdefault(f"up {up}; down {down}", []).append(cell.row)
    if len(rows) == 1:
        return next(iter(rows))
    return "; ".join(f"{', '.join(dict.fromkeys(names))}: {text}" for text, names in rows.items())


def _results(made: Table) -> Block:
    rows = [
        [Cell(text, words=index == 0 or made.columns[index] == "note") for index, text in enumerate(row)]
        for row in made.rows
    ]
    return table(made.caption, made.columns, rows, rest="table.csv")


def _differences(plan: cells.Plan) -> Block:
    """The settings that differ between the rows, each in its first column."""
    first = {cell.row: cell for cell in reversed(plan.cells)}
    rows = list(dict.fromkeys(cell.row for cell in plan.cells))
    found = origin.differing([first[row].table for row in rows])
    if not found:
        return Paragraph("The rows' federation files are the same.")
    # One line per row of the results: a column for each would not fit the page.
    lines = [
        [words(row), *(words(values[index]) for values in found.values())] for index, row in enumerate(rows)
    ]
    return table("Settings that are not the same in all rows", ("row", *found), lines, rest="results.json")


def _heading(plan: cells.Plan) -> str:
    seeds = ", ".join(str(seed) for seed in plan.seeds)
    seeds_text = "" if plan.experiment.kind == "sizes" else f", seeds {seeds} (mean ± standard deviation)"
    return f"{plan.experiment.reproduces or 'Recipes compared'}. Scale {plan.scale}{seeds_text}.\n"


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
