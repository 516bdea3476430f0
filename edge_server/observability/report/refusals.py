"""What the update firewall turned away, by reason and by device."""

from __future__ import annotations

from collections import Counter

from edge_server.config.units import UNKNOWN, count_text, names_text
from edge_server.observability.report.contents import RunContents
from edge_server.observability.report.document import Block, Cell, Paragraph, Section, numbers, table, words
from edge_server.storage.records import DeviceRecord

NONE = "Nothing that a device sent was refused."


def refusal_section(run: RunContents) -> Section:
    """Counts by reason, then the devices that were refused, the most often first."""
    devices = [one for one in run.summary.devices if one.refusals or one.quarantined_until is not None]
    in_rounds = Counter(str(one.reason) for record in run.history for one in record.rejected)
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
            words(_who(run, reason)),
        )
        for reason in reasons
    ]
    columns = ("reason", "messages", "updates in rounds", "devices")
    blocks: list[Block] = [table("What was refused, by reason", columns, rows)] if rows else []
    if devices:
        ordered = sorted(devices, key=lambda one: -one.refusals)
        heads = ("device", "tier", "refused", "why", "left out until round")
        blocks.append(table("Whose messages were refused", heads, [_device(one) for one in ordered]))
    return blocks


def _who(run: RunContents, reason: str) -> str:
    named = {one.device for record in run.history for one in record.rejected if one.reason == reason}
    named |= {one.device for one in run.summary.devices if one.refused.get(reason)}
    return names_text(sorted(named))


def _device(one: DeviceRecord) -> tuple[Cell, ...]:
    why = ", ".join(f"{reason} {count}" for reason, count in one.refused.items())
    until = UNKNOWN if one.quarantined_until is None else str(one.quarantined_until)
    return (
        words(one.device),
        *numbers(str(one.tier), count_text(one.refusals)),
        words(why),
        Cell(until, alert=one.quarantined_until is not None),
    )
