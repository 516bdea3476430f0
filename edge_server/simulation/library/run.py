"""A run that has ended, read from its folder."""

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_server.config.units import bytes_text, duration_text
from edge_server.observability.figures import leading_metric, measured_figures, measured_name
from edge_server.simulation.library.extras import data_frame, new_axes
from edge_server.storage import records, run_files

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from edge_server.simulation.library.extras import DataFrame


@dataclass(frozen=True, repr=False)
class Run:
    """A run that has ended, in its folder.

    `summary` has its results, `rounds` a `RoundRecord` per round. A notebook shows it as a table.
    """

    folder: Path
    summary: records.Summary
    rounds: tuple[records.RoundRecord, ...]

    @property
    def history(self) -> "DataFrame":
        """The rounds as a pandas DataFrame, a line per round; `RoundRecord` has the names of its columns.

        Raises `ConfigError` without pandas, which `rounds` does not need.
        """
        # Fields that a dump leaves out where they are empty have a column too.
        rows = [dict(record) | record.model_dump() for record in self.rounds]
        return data_frame([{name: row[name] for name in records.RoundRecord.model_fields} for row in rows])

    @property
    def models(self) -> Mapping[int, Path]:
        """The ONNX file of each tier; empty where the run exported none."""
        return {tier: self.folder / path for tier, path in sorted(self.summary.onnx.items())}

    def plot(self, axes: "Axes | None" = None, **style: Any) -> "Axes":
        """Draw the leading test figure by round into new matplotlib axes, or into these.

        `style` is that of `Axes.plot`. Raises `ConfigError` without matplotlib.
        """
        axes = new_axes() if axes is None else axes
        metric = leading_metric(self.rounds)
        points = [
            (record.round, record.test_metrics[metric.name])
            for record in self.rounds
            if metric.name in record.test_metrics
        ]
        numbers, values = zip(*points, strict=True) if points else ((), ())
        axes.plot(numbers, values, **{"marker": "o" if len(points) == 1 else "", **style})
        axes.set(xlabel="round", ylabel=f"test {metric.name}")
        axes.locator_params("x", integer=True)
        axes.grid(alpha=0.3)
        return axes

    @property
    def facts(self) -> dict[str, str]:
        """What a notebook shows of the run, as texts by name."""
        last, best = measured_figures(self.summary)
        return {
            "outcome": f"{self.summary.outcome} {self.summary.detail}".strip(),
            "rounds": str(self.summary.rounds),
            measured_name(self.summary): last,
            "best": best,
            "up, down": f"{bytes_text(self.summary.uplink_bytes)}, {bytes_text(self.summary.downlink_bytes)}",
            "time": duration_text(self.summary.duration_s),
        }

    def __repr__(self) -> str:
        facts = ", ".join(f"{name} {value}" for name, value in self.facts.items() if value)
        return f"<Run {self.folder}: {facts}>"

    def _repr_html_(self) -> str:
        return html_rows([{"run": str(self.folder), **self.facts}])


def html_rows(rows: list[dict[str, str]]) -> str:
    """A table of these rows, which have equal keys, for a notebook."""
    heads = "".join(f"<th>{escape(name)}</th>" for name in rows[0])
    lines = (f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row.values())}</tr>" for row in rows)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def load_run(folder: str | Path) -> Run:
    """Read the folder of a run that has ended; raises `ConfigError` for a missing or broken file."""
    files = run_files.read_run_files(Path(folder))
    return Run(Path(folder), files.summary, files.history)
