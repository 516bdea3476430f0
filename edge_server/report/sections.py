"""The sections of the report that are tables and text."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from edge_server.display.tables import runtimes_differ
from edge_server.display.units import (
    UNKNOWN,
    bytes_text,
    count_text,
    duration_text,
    loss_text,
    ms_text,
    percent_text,
    ratio_text,
    si_text,
)
from edge_server.history import DeviceRecord, RoundRecord, Summary
from edge_server.report.html_table import Cell, html_table

DEVICE_COLUMNS = (
    "device",
    "tier",
    "pruned",
    "parameters",
    "MACs",
    "ONNX file",
    "down",
    "up",
    "examples",
    "rounds",
    "refused",
    "accuracy in torch",
    "accuracy in onnxruntime",
    "largest difference",
    "ms per image",
)


def device_section(summary: Summary) -> str:
    """What each device got and gave."""
    if not summary.devices:
        return "<section><h2>Devices</h2><p>No device took part.</p></section>"
    rows = [_device_row(device) for device in summary.devices]
    caption = "Each device's compact model, its traffic, and its accuracy on held-out data in both runtimes"
    models = sorted(summary.onnx.items())
    files = "".join(f"<li>tier {tier}: <code>{escape(path)}</code></li>" for tier, path in models)
    listed = f"<h3>ONNX files</h3><ul>{files}</ul>" if files else ""
    return f"<section><h2>Devices</h2>{html_table(caption, DEVICE_COLUMNS, rows)}{listed}</section>"


def _device_row(device: DeviceRecord) -> list[Cell]:
    differs = runtimes_differ(device)
    onnx = percent_text(device.onnx_accuracy) + (" differs" if differs else "")
    difference = UNKNOWN if device.max_difference is None else f"{device.max_difference:.2g}"
    return [
        Cell(device.device, words=True),
        Cell(str(device.tier)),
        Cell(ratio_text(device.ratio)),
        Cell(count_text(device.parameters)),
        Cell(si_text(device.macs)),
        Cell(bytes_text(device.onnx_bytes)),
        Cell(bytes_text(device.downlink_bytes)),
        Cell(bytes_text(device.uplink_bytes)),
        Cell(count_text(device.examples)),
        Cell(count_text(device.rounds)),
        Cell(count_text(device.refusals), alert=device.refusals > 0),
        Cell(percent_text(device.torch_accuracy)),
        Cell(onnx, alert=differs),
        Cell(difference),
        Cell(ms_text(device.latency_ms)),
    ]


def round_section(history: Sequence[RoundRecord]) -> str:
    """What each round brought, and whose work did not count."""
    if not history:
        return "<section><h2>Rounds</h2><p>No round was closed.</p></section>"
    tiers = sorted({tier for record in history for tier in record.tier_accuracy})
    tier_columns = [f"tier {tier}" for tier in tiers]
    measured = ["round", "devices", "test accuracy", *tier_columns, "training loss", "test loss"]
    columns = [*measured, "down", "up", "time", "dropped", "refused"]
    rows = [_round_row(record, tiers) for record in history]
    caption = (
        "Each closed round: who completed it of those selected, accuracy and loss of the global model, "
        "accuracy of each tier's sub-model, traffic, and whose work did not count"
    )
    return f"<section><h2>Rounds</h2>{html_table(caption, columns, rows)}</section>"


def _round_row(record: RoundRecord, tiers: Sequence[int]) -> list[Cell]:
    refused = ", ".join(f"{rejected.device} ({rejected.reason})" for rejected in record.rejected)
    return [
        Cell(str(record.round)),
        Cell(f"{len(record.completed)} of {len(record.selected)}"),
        Cell(percent_text(record.test_accuracy)),
        *(Cell(percent_text(record.tier_accuracy.get(tier))) for tier in tiers),
        Cell(loss_text(record.train_loss)),
        Cell(loss_text(record.test_loss)),
        Cell(bytes_text(record.downlink_bytes)),
        Cell(bytes_text(record.uplink_bytes)),
        Cell(duration_text(record.duration_s)),
        Cell(", ".join(record.dropped), words=True),
        Cell(refused, words=True, alert=bool(record.rejected)),
    ]


def repeat_section() -> str:
    """The commands that run the same federation again."""
    return """<section><h2>Repeat it</h2>
<p>In this run's folder, with the same devices:</p>
<pre><code>edge-server run federation.toml --out again</code></pre>
<p>The seed and every default are written out in the file below.</p></section>"""


def file_section(federation_toml: str) -> str:
    """The federation file as it was resolved."""
    text = escape(federation_toml)
    return f"<section><h2>federation.toml, as resolved</h2>\n<pre><code>{text}</code></pre></section>"
