"""Writes to the inventory which devices are there, and what their births and telemetry say."""

from edge_server.coordinator.service.part import Heard, Part
from edge_server.storage.inventory.inventory import Inventory
from schemas.messages import Birth, Death, Telemetry

TELEMETRY_EVERY_S = 20.0
"""Least seconds between two writes of one device's telemetry: each waits for the disk."""


class PresenceKeeper(Part):
    """Keeps the inventory up to date."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._written: dict[tuple[str, str], float] = {}

    def heard(self, heard: Heard, now: float) -> None:
        match heard.message:
            case Birth() as birth:
                self._inventory.record_birth(birth, now, site=heard.site)
            case Death() as death:
                self._inventory.record_death(death, now)
            case Telemetry() as telemetry if self._is_due(heard, now):
                self._inventory.record_telemetry(telemetry, now)

    def _is_due(self, heard: Heard, now: float) -> bool:
        key = (heard.federation, heard.device)
        last = self._written.get(key)
        if last is not None and 0 <= now - last < TELEMETRY_EVERY_S:
            return False
        self._written[key] = now
        return True
