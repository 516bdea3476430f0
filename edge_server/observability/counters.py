"""What the server counts as it goes: bytes, refusals, telemetry, closed rounds, delivered models."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from edge_server.rounds.events import Note
from edge_server.rounds.fleet import MAX_DEVICES
from edge_server.rounds.link_bytes import IndirectTraffic, LinkBytes
from edge_server.storage.records import RoundRecord
from schemas.messages import Delivery, Telemetry

LAST_NOTES = 5
ALL = "(all)"
"""Who was sent what is published once for many. No device has this name."""
OTHERS = "(others)"
"""Who came when as many names as may be were known already: all counted together. No device has this name."""


class Tally:
    """Running counts of one run.

    `uplink` and `downlink` are MQTT payloads as the server receives and sends them, a broadcast once;
    `over_link` is what went over a device's own link.
    `clock` gives seconds: real ones, or those of a simulation. At most `most` devices are counted by name;
    those that are `known` come before all others.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        most: int | None = None,
        known: Callable[[str], bool] = lambda device: False,
    ) -> None:
        self._clock, self._most, self._known = clock, MAX_DEVICES if most is None else most, known
        self.uplink: Counter[str] = Counter()
        self.downlink: Counter[str] = Counter()
        self.indirect = IndirectTraffic()
        self.refusals: Counter[tuple[str | None, str]] = Counter()
        self.rounds: Counter[str] = Counter()
        self.telemetry: dict[str, Telemetry] = {}
        self.seen: dict[str, float] = {}
        self._refused: dict[str | None, Counter[str]] = {}
        self.history: list[RoundRecord] = []
        self.deliveries: dict[str, Delivery] = {}
        self._names: set[str] = set()
        self._strangers: deque[str] = deque()
        self.notes: deque[str] = deque(maxlen=LAST_NOTES)
        self._round_began = clock()
        self._before = (0, 0)

    def _name(self, device: str) -> str:
        """The name that a device is counted under: made-up ones must not fill the memory."""
        if device not in self._names:
            known = self._known(device)
            if len(self._names) >= self._most and not (known and self._displace()):
                return OTHERS
            self._names.add(device)
            if not known:
                self._strangers.append(device)
        return device

    def _displace(self) -> bool:
        """Count one who is still not known together with all others; returns whether there was one."""
        while self._strangers:
            name = self._strangers.popleft()
            if not self._known(name):
                self._forget(name)
                return True
        return False

    def _forget(self, name: str) -> None:
        self._names.discard(name)
        for counts in (self.uplink, self.downlink, self.indirect.shared, self.indirect.stored):
            counts[OTHERS] += counts.pop(name, 0)
        for reason, count in self._refused.pop(name, Counter()).items():
            del self.refusals[name, reason]
            self._refuse(OTHERS, reason, count)
        self.telemetry.pop(name, None)
        self.seen.pop(name, None)

    def received(self, device: str, size: int) -> None:
        """Bytes came from a device."""
        self.uplink[self._name(device)] += size

    def sent(self, device: str, size: int) -> None:
        """Bytes went to a device."""
        self.downlink[self._name(device)] += size

    def announced(self, devices: Iterable[str], size: int) -> None:
        """Bytes went to all, and reached the devices that were there."""
        self.sent(ALL, size)
        self.indirect.announced(devices, size)

    def published(self, devices: Iterable[str], attempt: int, size: int) -> None:
        """Bytes of an attempt's broadcast were sent once, and reached those who listened."""
        self.sent(ALL, size)
        self.indirect.published(devices, attempt, size)

    def over_link(self, device: str) -> LinkBytes:
        """What went over a device's link so far."""
        received = self.downlink[device] + self.indirect.shared[device]
        return LinkBytes(received, self.uplink[device] + self.indirect.stored[device])

    def refused(self, device: str | None, reason: str) -> None:
        """Something was refused."""
        self._refuse(None if device is None else self._name(device), str(reason), 1)

    def _refuse(self, name: str | None, reason: str, count: int) -> None:
        self.refusals[name, reason] += count
        self._refused.setdefault(name, Counter())[reason] += count

    def refused_of(self, device: str) -> dict[str, int]:
        """How often something of this device was refused, by reason."""
        own = self._refused.get(device)
        return dict(sorted(own.items())) if own else {}

    def heard(self, device: str) -> None:
        """Something came that was the device's own: it was there just now, in seconds since 1970."""
        if self._name(device) is not OTHERS:
            self.seen[device] = time.time()

    def told(self, telemetry: Telemetry) -> None:
        """A device said where it is."""
        if self._name(telemetry.device) is not OTHERS:
            self.telemetry[telemetry.device] = telemetry

    def noted(self, note: Note) -> str:
        """Something happened that people should see: return its words, and count a refusal.

        The last words that are not routine are kept.
        """
        if note.reason is not None:
            self.refused(note.device, note.reason)
        if not note.routine:
            self.notes.append(note.words)
        return note.words

    def begin_round(self) -> None:
        """From now on bytes and seconds belong to the next round."""
        self._round_began = self._clock()
        self._before = (self.uplink.total(), self.downlink.total())

    def round_figures(self) -> tuple[int, int, float]:
        """Bytes up, bytes down and seconds since the round began."""
        up, down = self._before
        seconds = self._clock() - self._round_began
        return self.uplink.total() - up, self.downlink.total() - down, seconds

    def traffic(self) -> dict[str, Any]:
        """The counts so far, as plain data."""
        refusals = [[device, reason, count] for (device, reason), count in self.refusals.items()]
        return {
            "uplink": dict(self.uplink),
            "downlink": dict(self.downlink),
            "shared": dict(self.indirect.shared),
            "stored": dict(self.indirect.stored),
            "refusals": refusals,
        }

    def restore(self, traffic: Mapping[str, Any], history: Iterable[RoundRecord]) -> None:
        """Go on from the counts and the closed rounds of a run that was cut off."""
        self.uplink.update(traffic.get("uplink", {}))
        self.downlink.update(traffic.get("downlink", {}))
        self.indirect.restore(traffic)
        for device, reason, count in traffic.get("refusals", ()):
            self._refuse(device, reason, count)
        for record in history:
            self.closed(record)
        self.begin_round()

    def closed(self, record: RoundRecord) -> None:
        """A round was aggregated."""
        self.history.append(record)
        self.rounds.update(record.completed)

    def delivered(self, delivery: Delivery) -> None:
        """A device has its model in place."""
        self.deliveries[delivery.device] = delivery
