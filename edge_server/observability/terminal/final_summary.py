"""The final tables and the outcome of a run."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from edge_server.config.units import UNKNOWN, clean
from edge_server.observability.figures import (
    before_and_after,
    keeps_text,
    personal_line,
    personalised_devices,
    warning_texts,
)
from edge_server.observability.snapshot import Snapshot
from edge_server.observability.terminal import tables
from edge_server.observability.terminal.device_groups import is_large_fleet, tier_table
from edge_server.storage.records import DeviceRecord

COMFORTABLE_WIDTH = 100


def print_closing(console: Console, snapshot: Snapshot | None) -> None:
    """Print the tables and the outcome, as far as the last snapshot has them."""
    if snapshot is None:
        return
    dense = console.width < COMFORTABLE_WIDTH
    if snapshot.history:
        console.print()
        console.print(tables.round_table(snapshot.history, dense=dense))
    if snapshot.summary is not None and snapshot.summary.devices:
        console.print()
        table = tier_table if is_large_fleet(snapshot.summary.devices) else tables.device_table
        console.print(table(snapshot.summary, dense=dense))
        _print_personal(console, snapshot.summary.devices, dense=dense)
        _print_trials(console, snapshot.summary.devices, dense=dense)
    for text in warning_texts(snapshot.history, snapshot.summary.devices if snapshot.summary else ()):
        console.print()
        console.print(Text(f"warning: {text}"))
    console.print()
    console.print(Text(_outcome(snapshot), style="bold"))


def _print_personal(console: Console, devices: Sequence[DeviceRecord], *, dense: bool) -> None:
    line = personal_line(devices)
    if line:
        console.print()
        if not is_large_fleet(devices):
            console.print(personal_table(devices, dense=dense))
        console.print(Text(line))


def _print_trials(console: Console, devices: Sequence[DeviceRecord], *, dense: bool) -> None:
    if not tables.on_trial(devices):
        return
    console.print()
    console.print(
        Text(tables.trial_line(devices))
        if is_large_fleet(devices)
        else tables.trial_table(devices, dense=dense)
    )


def _outcome(snapshot: Snapshot) -> str:
    if snapshot.summary is not None:
        return tables.outcome_text(snapshot.summary)
    return f"stopped in {snapshot.progress}, without a summary"


def personal_table(devices: Sequence[DeviceRecord], *, dense: bool = False) -> Table:
    table = tables.plain_table("Models trained on the devices' own data", dense=dense)
    table.add_column("device", overflow="fold")
    tables.add_numbers(table, "received", "trained")
    table.add_column("exported", no_wrap=True)
    table.add_column("why", overflow="fold")
    for device, found in personalised_devices(devices):
        style = "yellow" if found.before is None else ""
        table.add_row(
            Text(clean(device.device)),
            *before_and_after(found),
            Text(keeps_text(found), style=style),
            Text(clean(found.why or UNKNOWN)),
        )
    return table
