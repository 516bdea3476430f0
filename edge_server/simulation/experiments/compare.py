"""A comparison of an experiment's rows, or of a list of recipes."""

import tomllib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from edge_client.data.sources import load_source
from edge_server.config.sections import DataSettings
from edge_server.config.test_data import merge_tables
from edge_server.simulation import engines, inputs
from edge_server.simulation.experiments import cells, runner
from edge_server.simulation.experiments.cells import Cell, Plan, RunSelection, make_plan
from edge_server.simulation.experiments.experiment import Experiment, Row, experiment_names, load_experiment
from edge_server.simulation.experiments.findings import Findings
from schemas.errors import ConfigError


def named_experiment(words: Sequence[str]) -> Experiment:
    """The experiment that a single word names, or an experiment with the words' recipes and files as rows."""
    if len(words) == 1 and (words[0] in experiment_names() or _is_experiment(Path(words[0]))):
        return load_experiment(words[0])
    if len(words) == 1 and Path(words[0]).suffix == "" and not Path(words[0]).exists():
        # A single unknown word is taken for an experiment unless it is a recipe.
        from edge_server.config.load import recipe_names

        if words[0] not in recipe_names():
            return load_experiment(words[0])
    rows = tuple(Row(label=Path(word).stem, recipe=word) for word in words)
    return Experiment(title=", ".join(row.label for row in rows), seeds=(1,), rows=rows)


def run_comparison(
    plan: Plan, out: Path, *, simulate: cells.Simulate, progress: runner.Progress, parallel: int = 1
) -> Findings:
    """Run the comparison of the experiment's kind; `parallel` runs at once where runs are compared."""
    kind = plan.experiment.kind
    if kind == "sizes":
        from edge_server.simulation.experiments.sizes import find_sizes

        return find_sizes(plan)
    if kind == "similarity":
        from edge_server.simulation.experiments.similarity import find_similarity

        return find_similarity(plan, out, progress=progress)
    run_all = partial(runner.run_all, plan, out, simulate=simulate, progress=progress)
    if kind == "grad-cam":
        from edge_server.simulation.experiments.grad_cam import find_grad_cam

        return find_grad_cam(plan, run_all(), out)
    if kind == "league":
        from edge_server.simulation.experiments.league import find_league

        return find_league(plan, run_all(parallel=parallel), out)
    from edge_server.simulation.experiments.runs import findings_of

    return findings_of(plan, run_all(parallel=parallel), out)


def checked_plan(experiment: Experiment, choice: RunSelection) -> Plan:
    """The plan without the columns whose data is missing.

    Raises `ConfigError` if no column is left, or if a run needs a GPU that is not there.
    """
    plan = make_plan(experiment, choice)
    if experiment.kind == "sizes":
        return plan
    plan = replace(plan, cells=tuple(map(_with_data, plan.cells)))
    configs = [(cell, cell.config()) for cell in plan.cells]
    for _, config in configs:
        engines.check_device(config.simulation)
    reasons = [(cell, _missing_data(cell, config.data)) for cell, config in configs]
    missing = {cell.column: reason for cell, reason in reasons if reason}
    kept = tuple(cell for cell, reason in reasons if not reason)
    if not kept:
        raise ConfigError("\n".join(missing.values()))
    notes = tuple(f"{column} is left out: {reason}" for column, reason in missing.items())
    return replace(plan, cells=kept, notes=(*plan.notes, *notes))


def _with_data(cell: Cell) -> Cell:
    """The cell with a simulation's default data if it names none."""
    config = cell.config()
    if config.data.source is not None:
        return cell
    source = inputs.as_simulated(config).data.source
    return replace(cell, table=merge_tables(cell.table, {"data": {"source": source}}))


def _missing_data(cell: Cell, data: DataSettings) -> str:
    if data.source is None:
        raise ConfigError(
            "no data to compare on", place=f"row '{cell.row}'", remedy="set data.source=... (e.g. digits)"
        )
    try:
        load_source(data.source, data_root=data.data_root, split="test")
    except ConfigError as error:
        return str(error)
    return ""


def _is_experiment(path: Path) -> bool:
    try:
        return "rows" in tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return False
    except tomllib.TOMLDecodeError:
        return True
