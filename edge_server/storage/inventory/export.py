"""The inventory as CSV and JSON, which `edge-server inventory import` reads again."""

import csv
import io
from collections.abc import Sequence
from typing import Any

from edge_server.storage.inventory.fleet_file import LABEL, SHOWN, labels_text, time_text
from edge_server.storage.inventory.records import InventoryDevice

SOFTWARE = {"client": "edge-federation", "torch": "torch", "onnxruntime": "onnxruntime"}
"""Columns of versions, with the names of the packages."""


def csv_text(devices: Sequence[InventoryDevice]) -> str:
    """One row per device, with a column for each label that the operator has set on one of them."""
    keys = sorted({key for device in devices for key in device.own_labels})
    read = (
        "federation",
        "device",
        *(LABEL + key for key in keys),
        "note",
        "enrolled-at",
        "replaces",
        "removed-at",
    )
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow((*read, *SHOWN))
    for device in devices:
        cells = _read_cells(device)
        shown = _shown_cells(device)
        writer.writerow([*(cells.get(column, "") for column in read), *(shown[column] for column in SHOWN)])
    return out.getvalue()


def document(device: InventoryDevice) -> dict[str, Any]:
    """A device as JSON; `labels` are the operator's and the device's together."""
    return {**device.model_dump(mode="json"), "labels": device.labels}


def _read_cells(device: InventoryDevice) -> dict[str, str]:
    return {
        "federation": device.federation,
        "device": device.device,
        **{LABEL + key: value for key, value in device.own_labels.items()},
        "note": device.note,
        "enrolled-at": time_text(device.enrolled_at),
        "replaces": device.replaces,
        "removed-at": time_text(device.removed_at),
    }


def _shown_cells(device: InventoryDevice) -> dict[str, str]:
    return {
        "stated-labels": labels_text(device.stated_labels),
        "site": device.site,
        "alive": "yes" if device.alive else "no",
        "seen-at": time_text(device.seen_at),
        "certificate-until": time_text(device.certificate_until),
        "revoked-at": time_text(device.revoked_at),
        "machine": _harmless(device.machine),
        **{column: _harmless(device.versions.get(package, "")) for column, package in SOFTWARE.items()},
        "model": _harmless(device.model),
    }


def _harmless(text: str) -> str:
    """What a device states, so that no spreadsheet takes it for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
