"""Large fleets: counts by tier instead of a list of devices."""

from collections import Counter
from collections.abc import Collection, Sequence

from rich.table import Table

from edge_server.config.units import bytes_text, clean, ratio_text
from edge_server.observability.snapshot import DeviceView
from edge_server.observability.terminal.tables import add_numbers, plain_table
from edge_server.storage.records import DeviceRecord, Summary
from schemas.counted import format_count

MANY_DEVICES = 20  # Fleets with more devices are shown as counts by tier


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
