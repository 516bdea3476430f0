"""Several simulations side by side: `edge_server.compare` and `edge_server.sweep`."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_server.config.config import Config
from edge_server.observability.report.costs import measure
from edge_server.simulation.experiments.cells import expand_grid, slug
from edge_server.simulation.library.extras import data_frame, new_axes
from edge_server.simulation.library.run import Run, html_rows
from edge_server.simulation.library.simulate import Value, simulate, word
from edge_server.storage.service_folder import run_folder
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from edge_server.simulation.library.extras import DataFrame

Source = Config | str | Path


@dataclass(frozen=True)
class Comparison:
    """The runs of a comparison by their labels, in order. A notebook shows it as a table."""

    runs: Mapping[str, Run]

    @property
    def table(self) -> "DataFrame":
        """A line per run with its figures (`RunMeasures`), as a pandas DataFrame.

        Shares are 0 to 1; raises `ConfigError` without pandas.
        """
        lines = [vars(measure(run.rounds, run.summary)) for run in self.runs.values()]
        return data_frame(lines, list(self.runs)).drop(columns="reached")

    def plot(self, axes: "Axes | None" = None) -> "Axes":
        """Draw the leading test figure of each run by round; raises `ConfigError` without matplotlib."""
        axes = new_axes() if axes is None else axes
        for label, run in self.runs.items():
            run.plot(axes, label=label)
        axes.legend()
        return axes

    def _repr_html_(self) -> str:
        return html_rows([{"run": label, **run.facts} for label, run in self.runs.items()])


def compare(
    runs: Sequence[Source | Sequence[Source]] | Source,
    *overrides: str,
    out: str | Path | None = None,
    **settings: Any,
) -> Comparison:
    """Simulate each of `runs` as `simulate` does, and return them side by side.

    One of `runs` is a recipe, a file or a `Config`, alone or with `key=value` words of its own:
    `"attending"`, `"fedavg momentum=0.9"`, `("my file.toml", "rounds=5")`. A word `key=a,b` makes a run of
    each value. A run's own words win over those of all.
    `overrides` and `settings` are those of `simulate`, for all runs. With `out`, runs that have finished in
    that folder are not repeated.
    """
    folder = run_folder(Path(out) if out is not None else None, "compare")
    ended: dict[str, Run] = {}
    several = [runs] if isinstance(runs, (str, Path, Config)) else runs
    for number, (label, source, words) in enumerate(_runs(several, overrides), start=1):
        if label in ended:
            raise ConfigError(f"compare: '{label}' is named twice", remedy="name each run once")
        own = folder / f"{number:02}-{slug(label)[:60]}"
        ended[label] = simulate(source, *words, out=own, **settings)
    return Comparison(ended)


def sweep(
    source: Source,
    grid: Mapping[str, Sequence[Value]],
    *overrides: str,
    out: str | Path | None = None,
    **settings: Any,
) -> Comparison:
    """Simulate `source` with every combination of the values in `grid`, and return the runs side by side.

    `grid` has the values by setting: `{"learning_rate": [0.01, 0.1], "momentum": [0, 0.9]}`. The rest is as
    in `compare`.
    """
    words = (f"{key.replace('_', '-')}={','.join(_texts(key, values))}" for key, values in grid.items())
    return compare([(source, *words)], *overrides, out=out, **settings)


def _runs(
    runs: Sequence[Source | Sequence[Source]], overrides: Sequence[str]
) -> Iterator[tuple[str, Source, tuple[str, ...]]]:
    for entry in runs:
        parts = entry.split() if isinstance(entry, str) else entry
        source, *own = [parts] if isinstance(parts, (Path, Config)) else parts
        for words in expand_grid([*overrides, *map(str, own)]):
            named = [text for text in words if text not in overrides]
            head = source.federation.name if isinstance(source, Config) else Path(source).stem
            yield " ".join([head, *named]), source, words


def _texts(key: str, values: Sequence[Value]) -> list[str]:
    """The values as texts; raises `ConfigError` for a single value or none."""
    if isinstance(values, str) or not hasattr(values, "__iter__") or not len(values):
        raise ConfigError(
            f"{values!r} is not a list of values",
            key=key,
            remedy=f"write {{{key!r}: [0.01, 0.1]}}, for example",
        )
    # `expand_grid` takes a comma in quotes for a part of the value.
    return [json.dumps(value) if isinstance(value, str) and "," in value else word(value) for value in values]
