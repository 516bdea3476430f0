"""Refusals of the update firewall, by reason and by device."""

from collections import Counter

from edge_server.config.units import UNKNOWN, count_text, names_text
from edge_server.observability.report.contents import RunContents
from edge_server.observability.report.document import Block, Cell, Paragraph, Section, numbers, table, words
from edge_server.storage.records import DeviceRecord

NONE = "No message of a device was refused."


def refusal_section(run: RunContents) -> Section:
    """The section of counts by reason, and of the refused devices, those with most refusals first."""
    devices = [row for row in run.summary.devices if row.refusals or row.quarantined_until is not None]
    in_rounds = Counter(str(row.reason) for record in run.history for row in record.rejected)
    messages: Counter[str] = Counter()
    for device in run.summary.devices:
        messages.update(device.refused)
    reasons = sorted(
        {*in_rounds, *messages}, key=lambda reason: (-messages[reason], -in_rounds[reason], reason)
    )
    if not reasons and not devices:
        return Section("Refused by the firewall", (Paragraph(NONE),))
    return Section("Refused by the firewall", tuple(_tables(run, devices, reasons, in_rounds, messages)))


def _tables(
    run: RunContents,
    devices: list[DeviceRecord],
    reasons: list[str],
    in_rounds: Counter[str],
    messages: Counter[str],
) -> list[Block]:
    rows = [
        (
            words(reason),
            *numbers(count_text(messages[reason]), count_text(in_rounds[reason])),
            words(_refused_devices(run, reason)),
        )
        for reason in reasons
    ]
    columns = ("reason", "messages", "updates in rounds", "devices")
    blocks: list[Block] = [table("Refusals by reason", columns, rows)] if rows else []
    if devices:
        ordered = sorted(devices, key=lambda row: -row.refusals)
        heads = ("device", "tier", "refused", "reasons", "quarantined until round")
        blocks.append(table("Refusals by device", heads, [_device_cells(row) for row in ordered]))
    return blocks


def _refused_devices(run: RunContents, reason: str) -> str:
    named = {row.device for record in run.history for row in record.rejected if row.reason == reason}
    named |= {row.device for row in run.summary.devices if row.refused.get(reason)}
    return names_text(sorted(named))


def _device_cells(device: DeviceRecord) -> tuple[Cell, ...]:
    reasons = ", ".join(f"{reason} {count}" for reason, count in device.refused.items())
    until = UNKNOWN if device.quarantined_until is None else str(device.quarantined_until)
    return (
        words(device.device),
        *numbers(str(device.tier), count_text(device.refusals)),
        words(reasons),
        Cell(until, alert=device.quarantined_until is not None),
    )
