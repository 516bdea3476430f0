"""The cells of an experiment: one checked configuration per row and column, one run per seed."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any, Protocol, TypeVar

from edge_client.storage.atomic_files import write_synced
from edge_server.config.config import Config
from edge_server.config.load import check_config, load_config, read_table
from edge_server.config.test_data import merge_tables, override_table
from edge_server.observability.figures import newest_figure_text
from edge_server.observability.snapshot import Watcher
from edge_server.simulation.experiments.experiment import (
    Change,
    Column,
    Experiment,
    PaperNumbers,
    Row,
    Scale,
    at_scale,
    scale_of,
)
from edge_server.storage.records import RoundRecord, Summary
from edge_server.storage.run_files import read_run_files
from schemas.errors import ConfigError, EdgeError, nearest

_TOKEN = re.compile(r""""(?:\\.|[^"\\])*"|'[^']*'|.""", re.DOTALL)


def expand_grid(words: Sequence[str]) -> list[tuple[str, ...]]:
    """Every combination of the values of `key=a,b` words, in order, the last word's values first.

    Commas in quotes, brackets and braces belong to the value: `strategy.uplink=["int8","zstd"]` is one.
    Raises `ConfigError` for a value that is missing or there twice.
    """
    return list(itertools.product(*map(_single_words, words)))


def _single_words(word: str) -> list[str]:
    key, equals, text = word.partition("=")
    values = _values(text)
    if len(values) > 1 and "" in values:
        raise ConfigError(f"'{word}': a value is missing beside a comma; a sweep is key=a,b")
    if twice := next((value for value in values if values.count(value) > 1), None):
        raise ConfigError(f"'{word}': {twice} is named twice", remedy="name each value once")
    return [f"{key}{equals}{value}" for value in values]


def _values(text: str) -> list[str]:
    values, depth = [""], 0
    for token in _TOKEN.findall(text):
        depth += (token in "[{") - (token in "]}")
        if token == "," and depth == 0:
            values.append("")
        else:
            values[-1] += token
    return [value.strip() for value in values] if len(values) > 1 else [text]


Labelled = TypeVar("Labelled", Row, Column)

CODECS = ("uplink", "downlink")


@dataclass(frozen=True)
class RunSelection:
    """The runs that the user selects: scale, seeds, some rows and columns by label, `key=value` overrides.

    With overrides of several values, `key=a,b`, every row is there once with each combination.
    """

    scale: str = "full"
    seeds: tuple[int, ...] | None = None
    only: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cell:
    """One row in one column: its settings without a seed, its target accuracies, the paper's numbers.

    `swept` are the `key=value` words of a sweep that are not those of all cells.
    """

    row: str
    column: str
    table: Mapping[str, Any]
    targets: tuple[float, ...] = ()
    paper: PaperNumbers | None = None
    notes: tuple[str, ...] = ()
    tests_tiers: bool = False
    swept: tuple[str, ...] = ()

    def config(self, seed: int = 0) -> Config:
        """The configuration of one seed; `ConfigError` names the cell.

        Tiers are tested at the end only, unless the cell `tests_tiers` as often as the whole model.
        """
        every = 1 if self.tests_tiers else 1_000_000
        fixed = {"seed": seed, "deliver": "none", "evaluate-tiers-every": every}
        seeded = merge_tables(self.table, {"federation": fixed})
        return check_config(seeded, f"row '{self.row}', column '{self.column}'")


@dataclass(frozen=True)
class Plan:
    """The cells of a comparison in order, the seeds of each, and notes on the whole."""

    experiment: Experiment
    scale: str
    seeds: tuple[int, ...]
    cells: tuple[Cell, ...]
    notes: tuple[str, ...] = ()

    @property
    def runs(self) -> "list[CellRun]":
        """Every cell and seed, seed by seed, so that an interrupted comparison has the whole table once."""
        return [CellRun(cell, seed) for seed in self.seeds for cell in self.cells]


@dataclass(frozen=True)
class CellRun:
    cell: Cell
    seed: int

    @property
    def config(self) -> Config:
        return self.cell.config(self.seed)

    @property
    def folder(self) -> str:
        return f"{slug(self.cell.row)}-{slug(self.cell.column)}-seed{self.seed}"


def slug(label: str) -> str:
    """A label as part of a file name: lower case, with hyphens between letters, digits and dots."""
    return re.sub(r"[^a-z0-9.]+", "-", label.lower()).strip("-") or "x"


def make_plan(experiment: Experiment, choice: RunSelection) -> Plan:
    """Make and check all cells; raises `ConfigError` for the first that is wrong."""
    scale = scale_of(experiment, choice.scale)
    experiment = at_scale(experiment, scale)
    cells = tuple(_cells(experiment, scale, choice))
    if not cells:
        raise ConfigError(f"the experiment has no cells at scale '{choice.scale}'")
    seeds = choice.seeds or scale.seeds or experiment.seeds
    for cell in cells:
        cell.config(seeds[0])
    for seed in seeds[1:]:
        cells[0].config(seed)
    folders = [CellRun(cell, seeds[0]).folder for cell in cells]
    if twice := sorted({folder for folder in folders if folders.count(folder) > 1}):
        raise ConfigError(
            f"two cells would share the run folder {twice[0]}", remedy="give their rows other labels"
        )
    return Plan(experiment, choice.scale, seeds, cells, (*experiment.notes, *scale.notes))


def _cells(experiment: Experiment, scale: Scale, choice: RunSelection) -> Iterator[Cell]:
    grid = expand_grid(choice.overrides)
    if len(grid) > 1 and experiment.kind != "runs":
        raise ConfigError(
            f"an experiment of kind '{experiment.kind}' is not swept", remedy="sweep recipes instead"
        )
    rows = [row for row in experiment.rows if row.label not in scale.drop_rows]
    columns = [column for column in experiment.columns if column.label not in scale.drop_columns]
    columns = _choose_labelled(columns, choice.columns, "--columns", "column")
    for row in _choose_labelled(rows, choice.only, "--only", "row"):
        base = _recipe_table(row.recipe)
        for column in columns:
            if row.columns is None or column.label in row.columns:
                cell = _cell(experiment, scale, row, column, base)
                for label, settings in scale.variants_of(cell.row).items():
                    for words in grid:
                        table = reduce(merge_tables, (settings, *map(override_table, words)), cell.table)
                        swept = tuple(word for word in words if word not in choice.overrides)
                        yield replace(cell, row=", ".join((label, *swept)), table=table, swept=swept)


def _recipe_table(recipe: str) -> dict[str, Any]:
    """All settings of a recipe or file; codecs and training that it does not state follow from the cell's."""
    table = load_config(recipe).model_dump(mode="json", by_alias=True, exclude_none=True)
    stated = read_table(recipe)
    for name in set(CODECS) - stated.get("strategy", {}).keys():
        table["strategy"].pop(name)
    return {**table, "training": stated.get("training", {})}


def _cell(experiment: Experiment, scale: Scale, row: Row, column: Column, base: Mapping[str, Any]) -> Cell:
    """Later settings replace earlier ones; targets and notes of the scale replace the others.

    Variants and the command line come after.
    """
    in_row, in_column = scale.rows.get(row.label, Change()), scale.columns.get(column.label, Change())
    in_cell = row.cells.get(column.label, {})
    stated = [experiment.settings, column.settings, row.settings, in_cell, scale.settings]
    table = reduce(merge_tables, (*stated, in_column.settings, in_row.settings), base)
    aims = (in_column, scale, column, experiment)
    targets = next((aim.target_accuracies for aim in aims if aim.target_accuracies is not None), ())
    notes = (in_column.note or column.note, in_row.note or row.note)
    return Cell(
        in_row.label or row.label,
        in_column.label or column.label,
        table,
        targets,
        row.paper.get(column.label),
        tuple(note for note in notes if note),
        tests_tiers=experiment.kind == "league",
    )


def _choose_labelled(
    known: Sequence[Labelled], chosen: Sequence[str], option: str, kind: str
) -> list[Labelled]:
    labels = [part.label for part in known]
    for label in chosen:
        if label not in labels:
            raise ConfigError(f"no {kind} is called '{label}'{nearest(label, labels)}", key=option)
    return [part for part in known if not chosen or part.label in chosen]


# One run of a cell with one seed, in a run folder of its own; a finished one is kept.
FINISHED, INTERRUPTED = "finished", "interrupted"


class Simulate(Protocol):
    """Simulates one federation: `edge_server.simulation.simulator.simulate`, or a test's function."""

    def __call__(self, config: Config, *, out: Path, watcher: Watcher, resume: bool = False) -> Summary:
        """Simulate to the end, and write the run folder at `out`."""


@dataclass(frozen=True)
class EndedRun:
    """One ended run with its records; `failure` is the reason why there are none."""

    run: CellRun
    history: tuple[RoundRecord, ...] = ()
    summary: Summary | None = None
    failure: str = ""


def run_path(run: CellRun, out: Path) -> Path:
    return out / "runs" / run.folder


def do_run(run: CellRun, out: Path, simulate: Simulate, watcher: Watcher, *, alone: bool = True) -> EndedRun:
    """Run it, or resume it; a failure is reported as its reason.

    Unless it runs `alone`, other runs use the cores, and models are tested between rounds.
    """
    path, config = run_path(run, out), run.config
    write_synced(settings_path(run, out), config.to_toml().encode())
    if not alone and config.federation.testers is None:
        config = config.model_copy(update={"federation": config.federation.model_copy(update={"testers": 0})})
    resume = (path / "history.jsonl").exists()
    try:
        simulate(config, out=path, watcher=watcher, resume=resume)
        return read_run(run, path)
    except EdgeError as error:
        return EndedRun(run, failure=str(error))


def read_run(run: CellRun, path: Path) -> EndedRun:
    files = read_run_files(path)
    summary = files.summary
    failure = "" if summary.outcome in (FINISHED, INTERRUPTED) else f"{summary.outcome}: {summary.detail}"
    return EndedRun(run, files.history, summary, failure)


def kept_run(run: CellRun, out: Path) -> EndedRun | None:
    """The run if an earlier call has finished it."""
    path = run_path(run, out)
    if not (path / "summary.json").exists():
        return None
    done = read_run(run, path)
    return done if done.summary is not None and done.summary.outcome == FINISHED else None


def check_settings(run: CellRun, out: Path) -> None:
    """Refuse a run folder with other settings; the engine, its device and its workers may differ.

    Settings that were not there when the run began have their defaults.
    """
    path = settings_path(run, out)
    if path.exists() and not has_settings(load_config(str(path)), run):
        raise ConfigError(
            f"{run_path(run, out)} has other settings",
            remedy="choose another folder with --out, or remove this one",
        )


def has_settings(config: Config, run: CellRun) -> bool:
    return _without_engine(config.to_toml()) == _without_engine(run.config.to_toml())


def settings_path(run: CellRun, out: Path) -> Path:
    """The path of a run's settings, next to its folder."""
    return out / "runs" / f"{run.folder}.toml"


def _without_engine(text: str) -> str:
    engine = ("workers", "device", "engine")
    return "\n".join(line for line in text.splitlines() if line.partition(" = ")[0] not in engine)


def result_text(done: EndedRun, kept: bool) -> str:
    if done.failure or done.summary is None:
        return f"failed: {done.failure}"
    shown = newest_figure_text(done.history) or "not tested"
    return f"{shown}, finished earlier" if kept else f"{shown} in {done.summary.duration_s:.0f} s"
