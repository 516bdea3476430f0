"""The table of models that devices have trained on their own data before they exported them."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from edge_server.config.units import clean
from edge_server.observability.personal_models import (
    before_and_after,
    keeps_text,
    personalised,
    why_text,
)
from edge_server.observability.terminal.tables import add_numbers, plain_table
from edge_server.storage.records import DeviceRecord


def personal_table(devices: Sequence[DeviceRecord], *, dense: bool = False) -> Table:
    """One row per device: its figures as received and as trained, which it keeps, and why."""
    table = plain_table("Models trained on the devices' own data", dense=dense)
    table.add_column("device", overflow="fold")
    add_numbers(table, "received", "trained")
    table.add_column("exported", no_wrap=True)
    table.add_column("why", overflow="fold")
    for device, found in personalised(devices):
        style = "yellow" if found.before is None else ""
        table.add_row(
            Text(clean(device.device)),
            *before_and_after(found),
            Text(keeps_text(found), style=style),
            Text(clean(why_text(found))),
        )
    return table
