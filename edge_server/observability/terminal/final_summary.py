"""The final tables and the outcome of a run; counts by tier instead of a list of devices for large fleets."""

from collections import Counter
from collections.abc import Collection, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from edge_server.config.units import UNKNOWN, bytes_text, clean, ratio_text
from edge_server.observability import figures
from edge_server.observability.kept_features import describe_kept, kept_features
from edge_server.observability.snapshot import DeviceView, Snapshot
from edge_server.observability.terminal import tables
from edge_server.observability.terminal.tables import add_numbers, plain_table
from edge_server.storage.records import DeviceRecord, Summary
from schemas.errors import format_count

MANY_DEVICES = 20  # Fleets with more devices are shown as counts by tier

COMFORTABLE_WIDTH = 100


def is_large_fleet(devices: Collection[object]) -> bool:
    return len(devices) > MANY_DEVICES


def fleet_line(devices: Sequence[DeviceView]) -> str:
    """The connected devices by tier: `1000 devices: 500 of tier 1, 500 of tier 2`."""
    connected = [view for view in devices if view.state != "offline"]
    tiers = sorted(Counter(view.tier for view in connected).items())
    return f"{format_count(len(connected), 'device')}: " + ", ".join(
        f"{count} of tier {tier}" for tier, count in tiers
    )


def fleet_table(devices: Sequence[DeviceView]) -> Table:
    table = plain_table()
    table.expand = True
    add_numbers(table, "tier", "pruned", "devices")
    table.add_column("states", no_wrap=True, overflow="ellipsis", ratio=1, min_width=12)
    add_numbers(table, "down", "up")
    for tier in sorted({view.tier for view in devices}):
        own = [view for view in devices if view.tier == tier]
        states = ", ".join(f"{n} {state}" for state, n in sorted(Counter(v.state for v in own).items()))
        down, up = sum(view.downlink_bytes for view in own), sum(view.uplink_bytes for view in own)
        pruned = ratio_text(own[0].ratio)
        table.add_row(str(tier), pruned, str(len(own)), clean(states), bytes_text(down), bytes_text(up))
    return table


def tier_table(summary: Summary, *, dense: bool = False) -> Table:
    table = plain_table("Devices by tier", dense=dense)
    add_numbers(table, "tier", "pruned", "devices", "took part", "updates", "refused", "down", "up")
    for tier in sorted({device.tier for device in summary.devices}):
        table.add_row(str(tier), *_tier_cells([row for row in summary.devices if row.tier == tier]))
    return table


def _tier_cells(own: Sequence[DeviceRecord]) -> tuple[str, ...]:
    return (
        ratio_text(own[0].ratio),
        str(len(own)),
        str(sum(device.rounds > 0 for device in own)),
        str(sum(device.rounds for device in own)),
        str(sum(device.refusals for device in own)),
        bytes_text(sum(device.downlink_bytes for device in own)),
        bytes_text(sum(device.uplink_bytes for device in own)),
    )


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
    for text in figures.warning_texts(snapshot.history, snapshot.summary.devices if snapshot.summary else ()):
        console.print()
        console.print(Text(f"warning: {text}"))
    console.print()
    if snapshot.summary is not None and (share := snapshot.summary.trained):
        console.print(Text(f"devices trained {share.in_words()}"))
        if frozen := share.describe_frozen():
            console.print(Text(f"frozen: {frozen}"))
    if kept := describe_kept(kept_features(snapshot.history)):
        console.print(Text(f"features: {kept}"))
    console.print(Text(_outcome(snapshot), style="bold"))


def _print_personal(console: Console, devices: Sequence[DeviceRecord], *, dense: bool) -> None:
    line = figures.personal_line(devices)
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
    for device, found in figures.personalised_devices(devices):
        style = "yellow" if found.before is None else ""
        table.add_row(
            Text(clean(device.device)),
            *figures.before_and_after(found),
            Text(figures.keeps_text(found), style=style),
            Text(clean(found.why or UNKNOWN)),
        )
    return table
