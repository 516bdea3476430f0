"""An experiment file: the TOML file of a comparison, with its schema.

Rows are algorithms, columns are tasks (data set, partition, model). A cell's configuration is its row's
recipe with the settings of experiment, column, row and scale; later ones replace earlier ones.
"""

import tomllib
from collections.abc import Mapping, Sequence
from functools import reduce
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from edge_server.config.errors import explain
from edge_server.config.test_data import merge_tables
from schemas.base import Settings, fields_of
from schemas.errors import ConfigError, nearest
from schemas.values import Seed

EXPERIMENTS = "edge_server.simulation.experiments"

Kind = Literal["runs", "league", "sizes", "similarity", "grad-cam"]
Tables = Mapping[str, Mapping[str, Any]]
Target = Annotated[float, Field(gt=0, lt=1)]


class PaperNumbers(Settings):
    """The paper's numbers of a cell: accuracies in percent, `rounds` and `cost` by target ("0.9")."""

    average: float | None = None
    deviation: float | None = None
    best: float | None = None
    rounds: Mapping[str, float] = {}
    cost: Mapping[str, float] = {}
    parameters: float | None = None
    flops: float | None = None
    matching_rate: float | None = None


class Change(Settings):
    """The contents of a column, or the changes of a scale to a row or column."""

    label: str = ""
    note: str = ""
    settings: Tables = Field(default_factory=dict)
    target_accuracies: tuple[Target, ...] | None = None


class Column(Change):
    """A task on which every row is tried."""

    label: str = "result"


class Row(Settings):
    """An algorithm: its recipe and settings, those of single columns in `cells`; `columns` is all if None."""

    label: str
    recipe: str
    note: str = ""
    settings: Tables = Field(default_factory=dict)
    cells: Mapping[str, Tables] = {}
    columns: tuple[str, ...] | None = None
    paper: Mapping[str, PaperNumbers] = {}


class Scale(Settings):
    """A version of another size: what it states replaces the experiment's.

    A scale may be a league of rows that have papers' numbers at full scale. With `variants`, settings by
    label, every row is there once with each.
    """

    kind: Literal["runs", "league"] | None = None
    reference: str | None = None
    seeds: tuple[Seed, ...] | None = None
    average_share: float | None = Field(default=None, gt=0, le=1)
    target_accuracies: tuple[Target, ...] | None = None
    notes: tuple[str, ...] = ()
    settings: Tables = Field(default_factory=dict)
    rows: Mapping[str, Change] = {}
    columns: Mapping[str, Change] = {}
    variants: Mapping[str, Tables] = {}
    drop_rows: tuple[str, ...] = ()
    drop_columns: tuple[str, ...] = ()

    def variants_of(self, row: str) -> Mapping[str, Tables]:
        """The settings of each variant of the row by its label; the row itself if there are none."""
        return {f"{row}, {label}": settings for label, settings in self.variants.items()} or {row: {}}


def _grid_columns(stated: Mapping[str, Any]) -> tuple[Column, ...]:
    """A column for every combination of the grid; without a grid a single one."""
    points = list(product(*(axis.items() for axis in stated.get("grid", ()))))
    if points == [()]:
        return (Column(),)
    return tuple(
        Column(
            label=", ".join(label for label, _ in point),
            settings=reduce(merge_tables, (settings for _, settings in point), {}),
        )
        for point in points
    )


class Experiment(Settings):
    """An experiment file; averages are over the last `average_rounds` rounds, or that `average_share`.

    A league compares every row with the row `reference`, and also shows these `figures` of the whole model,
    by the names of the task's metrics. With a `grid`, axes of settings by label, there is a column for every
    combination, called by its labels.
    """

    title: str
    reproduces: str = ""
    kind: Kind = "runs"
    reference: str = ""
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] = (1, 2, 3)
    target_accuracies: tuple[Target, ...] = ()
    average_rounds: int = Field(default=10, ge=1)
    average_share: float | None = Field(default=None, gt=0, le=1)
    figures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    settings: Tables = Field(default_factory=dict)
    grid: tuple[Mapping[str, Tables], ...] = ()
    columns: Annotated[tuple[Column, ...], Field(min_length=1)] = Field(default_factory=_grid_columns)
    rows: Annotated[tuple[Row, ...], Field(min_length=1)]
    scale: Mapping[str, Scale] = {}

    @model_validator(mode="after")
    def _labels_are_known(self) -> "Experiment":
        rows, columns = [row.label for row in self.rows], [column.label for column in self.columns]
        for kind, labels in (("row", rows), ("column", columns)):
            if len(set(labels)) < len(labels):
                raise ValueError(f"two {kind}s have the same label: each {kind} needs its own")
        for row in self.rows:
            _check_labels("column", columns, [*(row.columns or ()), *row.cells, *row.paper])
        for scale in (Scale(), *self.scale.values()):
            version = at_scale(self, scale)
            if version.kind == "league":
                _check_labels(
                    "row", [label for row in rows for label in scale.variants_of(row)], [version.reference]
                )
        for scale in self.scale.values():
            _check_labels("row", rows, [*scale.rows, *scale.drop_rows])
            _check_labels("column", columns, [*scale.columns, *scale.drop_columns])
        return self


def _check_labels(kind: str, labels: Sequence[str], named: Sequence[str]) -> None:
    for label in named:
        if label not in labels:
            raise ValueError(f"no {kind} is called '{label}'{nearest(label, labels)}")


def experiment_names() -> list[str]:
    files = (item.name for item in resources.files(EXPERIMENTS).iterdir())
    return sorted(name.removesuffix(".toml") for name in files if name.endswith(".toml"))


def load_experiment(source: str) -> Experiment:
    """Read a shipped experiment by name, or a file; raises `ConfigError` naming file, key and remedy."""
    if source in experiment_names() and not Path(source).is_file():
        text = (resources.files(EXPERIMENTS) / f"{source}.toml").read_text(encoding="utf-8")
    else:
        text = _read(Path(source))
    try:
        return Experiment.model_validate(tomllib.loads(text), by_alias=True, by_name=False)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not valid TOML: {error}", place=source) from error
    except ValidationError as error:
        raise explain(error, Experiment, source) from error


def scale_of(experiment: Experiment, name: str) -> Scale:
    """What a scale changes; `full` changes nothing unless the file says so. `ConfigError` if unknown."""
    if name in experiment.scale:
        return experiment.scale[name]
    if name == "full":
        return Scale()
    raise ConfigError(f"no scale is called '{name}'{nearest(name, {'full', *experiment.scale})}")


def at_scale(experiment: Experiment, scale: Scale) -> Experiment:
    """The experiment with the scale's kind, reference row and averaging window."""
    stated = fields_of(scale, "kind", "reference", "average_share")
    return experiment.model_copy(update={name: value for name, value in stated.items() if value is not None})


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        hint = nearest(str(path), experiment_names()) if path.suffix == "" else ""
        raise ConfigError(f"there is no such file or experiment{hint}", place=path) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {error}", place=path) from error
