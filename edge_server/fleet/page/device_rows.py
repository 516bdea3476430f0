"""From the inventory's devices to the rows of the page: chosen, sorted, one page of them; pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edge_server.config.measures import parse_digits
from edge_server.storage.inventory.records import InventoryDevice
from schemas.base import fields_of
from schemas.errors import ConfigError, nearest
from schemas.selectors import Where, parse_where

Json = dict[str, Any]
OPTIONS = ("where", "find", "sort", "offset", "limit")  # What a query may state
MAX_ROWS = 500
USUAL_ROWS = 100
CLIENT = "edge-federation"  # The client's own entry among a device's versions

_SORTS: Mapping[str, Callable[[InventoryDevice], Any]] = {
    "device": lambda device: (device.device, device.federation),
    "federation": lambda device: (device.federation, device.device),
    "seen": lambda device: device.seen_at,
    "certificate": lambda device: device.certificate_until,
    "model": lambda device: device.model or None,
    "client": lambda device: device.versions.get(CLIENT),
    "site": lambda device: device.selectable.get("site"),
    "state": lambda device: (device.revoked_at is not None, not device.alive, device.device),
}


@dataclass(frozen=True)
class DeviceQuery:
    where: Where
    words: tuple[str, ...]
    sort: str
    descending: bool
    offset: int
    limit: int


def parse_query(asked: Mapping[str, str]) -> DeviceQuery:
    order = asked.get("sort", "") or "device"
    sort = order.removeprefix("-")
    if sort not in _SORTS:
        raise ConfigError(f"there is no column '{sort}'{nearest(sort, _SORTS)}", key="sort")
    return DeviceQuery(
        where=parse_where(asked.get("where", "")),
        words=tuple(asked.get("find", "").lower().split()),
        sort=sort,
        descending=order.startswith("-"),
        offset=_number(asked, "offset", 0),
        limit=min(MAX_ROWS, _number(asked, "limit", USUAL_ROWS)),
    )


def device_page(devices: Sequence[InventoryDevice], query: DeviceQuery) -> Json:
    found = [device for device in devices if _matches(device, query)]
    ordered = _sort_devices(found, query)[query.offset : query.offset + query.limit]
    return {
        "total": len(devices),
        "matching": len(found),
        "online": sum(device.alive for device in found),
        "offset": query.offset,
        "rows": [device_row(device) for device in ordered],
    }


def device_row(device: InventoryDevice) -> Json:
    return {
        **fields_of(device, "federation", "device", "seen_at", "certificate_until", "labels", "model"),
        **fields_of(device, "machine", "note"),
        "state": state_of(device),
        "site": device.selectable.get("site", ""),
        "client": device.versions.get(CLIENT, ""),
    }


def device_detail(device: InventoryDevice) -> Json:
    return {
        **device_row(device),
        "own_labels": dict(device.own_labels),
        "stated_labels": dict(device.stated_labels),
        "versions": dict(device.versions),
        **fields_of(device, "enrolled_at", "revoked_at", "removed_at", "replaces"),
        "disk_free_bytes": device.free_disk,
        "board": device.board.model_dump(mode="json") if device.board else {},
        "drifts": device.drift is not None,
        "shown": dict(device.shown),
        "broken_files": device.skipped.in_words() if device.skipped else "",
    }


def state_of(device: InventoryDevice) -> str:
    if device.removed_at is not None:
        return "removed"
    if device.revoked_at is not None:
        return "revoked"
    if device.alive:
        return "online"
    return "offline" if device.seen_at is not None else "never seen"


def _matches(device: InventoryDevice, query: DeviceQuery) -> bool:
    if not query.where.matches(device.selectable):
        return False
    if not query.words:
        return True
    texts = (
        device.device,
        device.federation,
        device.machine,
        device.model,
        device.note,
        *device.labels.values(),
    )
    text = " ".join(texts).lower()
    return all(word in text for word in query.words)


def _sort_devices(devices: Sequence[InventoryDevice], query: DeviceQuery) -> list[InventoryDevice]:
    """Sorted; devices without the value come last in either direction."""
    key = _SORTS[query.sort]
    known = [device for device in devices if key(device) is not None]
    unknown = [device for device in devices if key(device) is None]
    return sorted(known, key=key, reverse=query.descending) + unknown


def _number(asked: Mapping[str, str], name: str, usual: int) -> int:
    text = asked.get(name, "") or str(usual)
    if (number := parse_digits(text)) is None:
        raise ConfigError(f"'{text}' is not a whole number from 0", key=name)
    return number
