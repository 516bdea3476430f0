"""The tables of a comparison: every cell's figures over the seeds, and the paper's."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edge_client.data.tasks.learning_task import Metric
from edge_server.config.units import bytes_text, count_text, duration_text
from edge_server.observability.figures import ACCURACY, leading_metric
from edge_server.observability.report.costs import RunMeasures, averaging_window, measure
from edge_server.simulation.experiments.cells import Cell, EndedRun, Plan
from edge_server.simulation.experiments.experiment import PaperNumbers
from edge_server.simulation.experiments.findings import NOTHING, Spread, Table, spread, without_empty
from schemas.base import fields_of


@dataclass(frozen=True)
class Result:
    """A cell and the figures of its runs by seed, of `metric`; `parameters` is the mean over the tiers."""

    cell: Cell
    runs: Mapping[int, RunMeasures]
    window: int
    metric: Metric
    parameters: float | None = None
    failures: tuple[str, ...] = ()

    def over_seeds(self, value: Callable[[RunMeasures], float | None]) -> Spread | None:
        return spread([value(run) for run in self.runs.values()])


def results(plan: Plan, done: Sequence[EndedRun], sizes: Mapping[str, float]) -> list[Result]:
    """One result per cell with a run, in the plan's order; `sizes` are parameters by run folder name."""
    by_cell = [(cell, [ended for ended in done if ended.run.cell is cell]) for cell in plan.cells]
    return [_result(plan, cell, own, sizes) for cell, own in by_cell if own]


def _result(plan: Plan, cell: Cell, own: Sequence[EndedRun], sizes: Mapping[str, float]) -> Result:
    experiment = plan.experiment
    window = averaging_window(
        cell.config().federation.rounds,
        average_rounds=experiment.average_rounds,
        average_share=experiment.average_share,
    )
    runs = {
        finished.run.seed: measure(finished.history, finished.summary, targets=cell.targets, window=window)
        for finished in own
        if finished.summary is not None and not finished.failure
    }
    failures = tuple(f"seed {finished.run.seed}: {finished.failure}" for finished in own if finished.failure)
    metric = leading_metric([record for finished in own for record in finished.history])
    return Result(cell, runs, window, metric, sizes.get(own[0].run.folder), failures)


def comparison_tables(found: Sequence[Result]) -> list[Table]:
    """One table per column of the experiment, without empty columns."""
    columns = dict.fromkeys(result.cell.column for result in found)
    return [
        _table(column, [result for result in found if result.cell.column == column]) for column in columns
    ]


def _table(column: str, found: Sequence[Result]) -> Table:
    window, metric = max(result.window for result in found), found[0].metric
    heads = [
        "",
        f"average of last {window} ({unit(metric)})",
        "paper",
        f"best ({unit(metric)})",
        "paper best",
        *(head for target in _targets(found) for head in _target_heads(target, metric)),
        "updates sent",
        "up",
        "down",
        "parameters",
        "virtual time",
        "note",
    ]
    table = Table(column, tuple(heads), tuple(_row(result, _targets(found)) for result in found))
    return without_empty(table)


def _targets(found: Sequence[Result]) -> list[float]:
    papers = [result.cell.paper for result in found if result.cell.paper]
    stated = {float(key) for paper in papers for key in (*paper.rounds, *paper.cost)}
    return sorted(stated | {target for result in found for target in result.cell.targets})


def unit(metric: Metric) -> str:
    if metric is ACCURACY:
        return "%"
    return f"{metric.name}, %" if metric.share else metric.name


def _target_heads(target: float, metric: Metric) -> tuple[str, ...]:
    name = f"{100 * target:g}%" if metric.share else f"{target:g}"
    return (
        f"rounds to {name}",
        f"cost to {name} (updates)",
        f"cost to {name} (full models)",
        f"paper, {name}",
    )


def _row(result: Result, targets: Sequence[float]) -> tuple[str, ...]:
    paper = result.cell.paper or PaperNumbers()
    return (
        result.cell.row,
        spread_text(result.metric, result.over_seeds(lambda run: run.average)),
        _plus_minus(paper.average, paper.deviation),
        spread_text(result.metric, result.over_seeds(lambda run: run.best)),
        _plus_minus(paper.best, None),
        *(text for target in targets for text in _target_cells(result, target, paper)),
        whole(result.over_seeds(lambda run: run.updates)),
        _mean_text(result.over_seeds(lambda run: run.uplink_bytes), bytes_text),
        _mean_text(result.over_seeds(lambda run: run.downlink_bytes), bytes_text),
        NOTHING if result.parameters is None else count_text(round(result.parameters)),
        _mean_text(result.over_seeds(lambda run: run.virtual_time_s), duration_text),
        "; ".join([*result.cell.notes, *result.failures, *_rejection_notes(result)]),
    )


def _target_cells(result: Result, target: float, paper: PaperNumbers) -> tuple[str, ...]:
    key = f"{target:g}"
    printed = NOTHING
    if key in paper.rounds:
        printed = f"{paper.rounds[key]:g}" + (f" ({paper.cost[key]:g})" if key in paper.cost else "")
    if target not in result.cell.targets:
        return (NOTHING, NOTHING, NOTHING, printed)
    reached = {seed: run.reached[target] for seed, run in result.runs.items()}
    rounds = spread([r.round if r else None for r in reached.values()])
    missed = sum(1 for r in reached.values() if r is None)
    some = f" ({len(reached) - missed} of {len(reached)})" if missed and rounds else ""
    return (
        (whole(rounds) or "not reached") + some,
        whole(spread([r.updates if r else None for r in reached.values()])),
        whole(spread([r.models if r else None for r in reached.values()])),
        printed,
    )


def _rejection_notes(result: Result) -> list[str]:
    refused = sum(run.rejected for run in result.runs.values())
    return [f"{refused} updates refused"] if refused else []


def spread_text(metric: Metric, value: Spread | None) -> str:
    """A share of one as `91.13 ± 0.20`, else `1.234 ± 0.05`."""
    if value is None:
        return NOTHING
    if not metric.share:
        return f"{value.mean:.4g}" + ("" if value.deviation is None else f" ± {value.deviation:.2g}")
    return _plus_minus(100 * value.mean, None if value.deviation is None else 100 * value.deviation)


def whole(value: Spread | None) -> str:
    """A count as `423 ± 12`."""
    if value is None:
        return NOTHING
    return f"{value.mean:,.0f}" + (f" ± {value.deviation:,.0f}" if value.deviation else "")


def _plus_minus(mean: float | None, deviation: float | None) -> str:
    if mean is None:
        return NOTHING
    return f"{mean:.2f}" + (f" ± {deviation:.2f}" if deviation is not None else "")


def _mean_text(value: Spread | None, text: Callable[[float], str]) -> str:
    return NOTHING if value is None else text(value.mean)


def records(found: Sequence[Result]) -> list[dict[str, Any]]:
    """A flat record per cell: mean and deviation of each figure (shares 0 to 1), the paper's numbers."""
    lines = []
    for result in found:
        line: dict[str, Any] = {
            "row": result.cell.row,
            "column": result.cell.column,
            "seeds": len(result.runs),
            **({} if result.metric is ACCURACY else {"metric": result.metric.name}),
        }
        for name in _FIGURES:
            line |= _flat(name, result.over_seeds(lambda run, name=name: getattr(run, name)))  # type: ignore[misc]
        line["parameters"] = result.parameters
        for target in result.cell.targets:
            for name in ("round", "updates", "models"):
                values = [getattr(run.reached[target], name, None) for run in result.runs.values()]
                line |= _flat(f"{name}_to_{target:g}", spread(values))
            line[f"reached_{target:g}"] = sum(run.reached[target] is not None for run in result.runs.values())
        line |= _paper(result.cell.paper)
        lines.append({**line, "note": "; ".join([*result.cell.notes, *result.failures])})
    return lines


_FIGURES = (
    "average",
    "best",
    "final",
    "updates",
    "models",
    "uplink_bytes",
    "downlink_bytes",
    "virtual_time_s",
    "duration_s",
)


def _paper(paper: PaperNumbers | None) -> dict[str, float]:
    flat: dict[str, float] = {}
    for name, value in (paper.model_dump(exclude_defaults=True) if paper else {}).items():
        if isinstance(value, Mapping):
            flat |= {f"paper_{name}_to_{target}": number for target, number in value.items()}
        else:
            flat[f"paper_{name}"] = value
    return flat


def _flat(name: str, value: Spread | None) -> dict[str, float | None]:
    return {name: value.mean if value else None, f"{name}_std": value.deviation if value else None}


def details(found: Sequence[Result]) -> dict[str, Any]:
    return {
        "cells": [
            {
                **fields_of(result.cell, "row", "column", "notes"),
                "metric": result.metric.name,
                "parameters": result.parameters,
                "average_rounds": result.window,
                "paper": result.cell.paper.model_dump(exclude_defaults=True) if result.cell.paper else None,
                "failures": result.failures,
                "settings": result.cell.table,
                "runs": [{"seed": seed, **_run(run)} for seed, run in result.runs.items()],
            }
            for result in found
        ]
    }


def _run(run: RunMeasures) -> dict[str, Any]:
    reached = {f"{target:g}": r and dataclasses.asdict(r) for target, r in run.reached.items()}
    return {**dataclasses.asdict(run), "reached": reached}
