"""Trials of a delivered model: which devices serve it, which keep their earlier one, and why."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from edge_server.config.units import UNKNOWN, clean, count_text, counted_text, percent_text
from edge_server.observability.terminal.tables import add_numbers, plain_table
from edge_server.storage.records import DeviceRecord


def on_trial(devices: Sequence[DeviceRecord]) -> list[DeviceRecord]:
    """The devices that served another model before this one."""
    return [row for row in devices if row.verdict is not None and row.verdict.earlier]


def serves_text(device: DeviceRecord) -> str:
    """Which model the device serves: `new` or `earlier`; a dash if it received none."""
    return {True: "new", False: "earlier", None: UNKNOWN}[device.serves_new]


def trial_table(devices: Sequence[DeviceRecord], *, dense: bool = False) -> Table:
    """One row per device with an earlier model: both accuracies on the same examples, and the verdict."""
    table = plain_table("Trials of the new model", dense=dense)
    table.add_column("device", overflow="fold")
    table.add_column("serves", no_wrap=True)
    add_numbers(table, "new", "earlier", "examples")
    table.add_column("why", overflow="fold")
    for device in on_trial(devices):
        verdict = device.verdict
        assert verdict is not None
        table.add_row(
            Text(clean(device.device)),
            Text(serves_text(device), style="" if verdict.served else "yellow"),
            percent_text(verdict.accuracy),
            percent_text(verdict.earlier_accuracy),
            count_text(verdict.examples or None),
            Text(clean(verdict.why)),
        )
    return table


def trial_line(devices: Sequence[DeviceRecord]) -> str:
    """Trials of a large fleet: `12 of 40 devices on trial keep their earlier model`; empty without any."""
    tried = on_trial(devices)
    if not tried:
        return ""
    kept = sum(row.serves_new is False for row in tried)
    return f"{count_text(kept)} of {counted_text(len(tried), 'device')} on trial keep their earlier model"
