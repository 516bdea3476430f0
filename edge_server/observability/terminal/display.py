"""The display of a run: a live view in a terminal, plain lines in a pipe, JSON for programs."""

import os
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Literal, Self, TextIO

from rich.console import Console, ConsoleDimensions, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from edge_client.data.tasks.learning_task import Metric
from edge_server.config.units import bytes_text, clean, clock_text, figure_text, loss_text, ratio_text
from edge_server.observability.figures import best_of, figures_there, leading_metric, where_measured
from edge_server.observability.report.markdown import sparkline
from edge_server.observability.snapshot import DeviceView, Snapshot, Watcher
from edge_server.observability.terminal import final_summary, log_lines
from edge_server.observability.terminal.tables import add_numbers, plain_table
from edge_server.storage.records import RoundRecord
from schemas.base import Frozen


def make_display(
    *, stream: TextIO | None = None, format: Literal["table", "json"] = "table"
) -> AbstractContextManager[Watcher]:
    """The display for the stream (default: standard output) and the format; at its exit it shows the end."""
    # Looked up at call time, so that a redirected standard output is used.
    out = sys.stdout if stream is None else stream
    if format == "json":
        return JsonLines(out)
    if out.isatty() and os.environ.get("TERM") not in ("dumb", "unknown"):
        return PrettyDisplay(Console(file=out))
    return log_lines.PlainDisplay(out)


class JsonLines:
    """Writes one JSON document per line; only the summary has an `outcome`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last: Snapshot | None = None
        self._closed = 0

    def __enter__(self) -> Self:
        return self

    def show(self, snapshot: Snapshot) -> None:
        """Write the rounds closed since the last call."""
        for record in snapshot.history:
            if record.round > self._closed:
                self._write(record)
                self._closed = record.round
        self._last = snapshot

    def __exit__(self, *_: object) -> None:
        if self._last is not None and self._last.summary is not None:
            self._write(self._last.summary)

    def _write(self, value: Frozen) -> None:
        print(value.model_dump_json(), file=self._stream, flush=True)


class PrettyDisplay:
    """Redraws one view in place and replaces it by the final tables at the end."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last: Snapshot | None = None
        # Drawn on each snapshot only: no refresh thread, no flicker.
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def show(self, snapshot: Snapshot) -> None:
        self._last = snapshot
        options = self._console.options
        view = run_view(snapshot, options.size, ascii_only=options.ascii_only)
        self._live.update(view, refresh=True)

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        final_summary.print_closing(self._console, self._last)


LAST_ROUNDS = 3
LAST_NOTES = 3
STATE_STYLES = {
    "training": "cyan",
    "uploading": "cyan",
    "checking": "cyan",
    "done": "green",
    "refused": "red",
    "declined": "red",
    "missed": "yellow",
    "offline": "yellow",
    "quarantined": "red",
    "incompatible": "red",
}
AT_REST = frozenset({"idle", "done", "offline", "quarantined", "incompatible"})


def run_view(snapshot: Snapshot, size: ConsoleDimensions, *, ascii_only: bool = False) -> Group:
    """The whole view, cut to fit the terminal; active devices are shown first."""
    above: list[RenderableType] = [Text(), _header(snapshot), _progress(snapshot), Text()]
    below: list[RenderableType] = []
    if _has_figures(snapshot):
        below += [Text(), _figures(snapshot.history, size.width, ascii_only=ascii_only)]
    if snapshot.notes:
        notes = map(clean, snapshot.notes[-LAST_NOTES:])
        below += [Text(), *(Text(note, style="dim", no_wrap=True, overflow="ellipsis") for note in notes)]
    # Four lines: the heads, their rule, the line that counts the rest, and the cursor's line.
    rows = max(1, size.height - len(above) - _height(snapshot) - 4)
    # For many virtual devices, counts are more informative than a list of the busy ones.
    counted = snapshot.virtual_s is not None and final_summary.is_large_fleet(snapshot.devices)
    devices = [final_summary.fleet_table(snapshot.devices)] if counted else _devices(snapshot.devices, rows)
    return Group(*above, *devices, *below)


def _has_figures(snapshot: Snapshot) -> bool:
    """Whether a round has closed that may have figures; one of statistics has none of the model."""
    return any(record.statistics is None for record in snapshot.history[-1:])


def _height(snapshot: Snapshot) -> int:
    accuracy = min(len(snapshot.history), LAST_ROUNDS) + 4 if _has_figures(snapshot) else 0
    notes = min(len(snapshot.notes), LAST_NOTES) + 1 if snapshot.notes else 0
    return accuracy + notes


def _header(snapshot: Snapshot) -> Table:
    grid = Table.grid(expand=True, padding=(0, 2))
    grid.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    grid.add_column(no_wrap=True, justify="right")
    left = Text.assemble(
        (clean(snapshot.federation), "bold"),
        "  ",
        (clean(snapshot.run), "dim"),
        "  ",
        (clean(snapshot.no_link), "red") if snapshot.no_link else (snapshot.state, "cyan"),
        "  ",
        (clean(snapshot.tested_on), "dim"),
    )
    right = f"elapsed {clock_text(snapshot.elapsed_s)}"
    if snapshot.virtual_s is not None:
        right += f"  virtual {clock_text(snapshot.virtual_s)}"
    elif snapshot.deadline_in_s is not None:
        right += f"  deadline in {clock_text(snapshot.deadline_in_s)}"
    if snapshot.left_s is not None:
        right += f"  left {clock_text(snapshot.left_s)}"
    grid.add_row(left, Text(right))
    return grid


def _progress(snapshot: Snapshot) -> Table:
    closed = snapshot.history[-1].round if snapshot.history else 0
    grid = Table.grid(expand=True, padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(ratio=1)
    grid.add_column(no_wrap=True, justify="right")
    bar = ProgressBar(total=snapshot.rounds or None, completed=min(closed, snapshot.rounds))
    delivered = f"{len(snapshot.delivered)} delivered" if snapshot.delivered else f"{closed} closed"
    grid.add_row(Text(snapshot.progress), bar, Text(delivered))
    return grid


def _devices(devices: Sequence[DeviceView], rows: int) -> list[RenderableType]:
    if not devices:
        return [Text("no devices yet", style="dim")]
    shown = _most_active(devices, rows)
    table = plain_table()
    table.expand = True
    table.add_column("device", no_wrap=True, overflow="ellipsis", ratio=1, min_width=12)
    add_numbers(table, "tier", "pruned")
    table.add_column("state", no_wrap=True, overflow="ellipsis", ratio=1, min_width=12)
    add_numbers(table, "loss", "down", "up")
    for view in shown:
        table.add_row(*_device_cells(view))
    shown_names = {view.device for view in shown}
    rest = Counter(view.state for view in devices if view.device not in shown_names)
    if not rest:
        return [table]
    states = ", ".join(f"{number} {state}" for state, number in sorted(rest.items()))
    return [table, Text(f"and {rest.total()} more: {clean(states)}", style="dim", no_wrap=True)]


def _most_active(devices: Sequence[DeviceView], rows: int) -> list[DeviceView]:
    """At most `rows` devices in their given order; devices at rest are left out first."""
    if len(devices) <= rows:
        return list(devices)
    ranked = sorted(range(len(devices)), key=lambda index: (devices[index].state in AT_REST, index))
    return [devices[index] for index in sorted(ranked[:rows])]


def _device_cells(view: DeviceView) -> tuple[Text | str, ...]:
    return (
        Text(clean(view.device)),
        str(view.tier),
        ratio_text(view.ratio),
        Text(_state(view), style=STATE_STYLES.get(view.state, "dim")),
        loss_text(view.loss),
        bytes_text(view.downlink_bytes),
        bytes_text(view.uplink_bytes),
    )


def _state(view: DeviceView) -> str:
    if view.state == "training" and view.epoch is not None:
        return f"training {view.epoch}/{view.epochs}" if view.epochs else f"training {view.epoch}"
    return clean(f"{view.state}: {view.reason}" if view.reason else view.state)


def _figures(history: Sequence[RoundRecord], width: int, *, ascii_only: bool) -> Group:
    """A curve of all tested rounds, and the last of them as rows with as many tiers as fit the width."""
    # Not every round is tested; an older tested round is more informative than an empty row.
    where = where_measured(history)
    measured = [record for record in history if figures_there(record, where)]
    last, metric = (measured or list(history))[-LAST_ROUNDS:], leading_metric(history)
    text, lead = figure_text(metric), metric.name
    tiers = sorted({tier for record in last for tier in record.tier_metrics})[: max(0, (width - 32) // 8)]
    table = plain_table()
    add_numbers(table, "round", where, *(f"tier {tier}" for tier in tiers), "train loss")
    for record in last:
        by_tier = [text(record.tier_metrics.get(tier, {}).get(lead)) for tier in tiers]
        figure = text(figures_there(record, where).get(lead))
        table.add_row(str(record.round), figure, *by_tier, loss_text(record.train_loss))
    return Group(_curve(history, metric, ascii_only=ascii_only), table)


def _curve(history: Sequence[RoundRecord], metric: Metric, *, ascii_only: bool) -> Text:
    where = where_measured(history)
    figures = [figures_there(record, where) for record in history]
    values = [found[metric.name] for found in figures if metric.name in found]
    best = best_of(metric, values)
    curve = sparkline(values, ascii_only=ascii_only)
    best_text = "not measured yet" if best is None else f"  best {figure_text(metric)(best)}"
    return Text.assemble((f"{where} {metric.name}  ", "dim"), (curve, "cyan"), best_text, no_wrap=True)
