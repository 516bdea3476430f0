"""What the server counts as it goes: bytes, refusals, telemetry, closed rounds, delivered models."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from edge_server.fleet import MAX_DEVICES
from edge_server.history import RoundRecord
from edge_server.round_events import Note
from schemas.messages import Delivery, Telemetry

LAST_NOTES = 5
ALL = "(all)"
"""Who was sent what is published once for many. No device has this name."""
OTHERS = "(others)"
"""Who came when as many names as may be were known already: all counted together. No device has this name."""


class Tally:
    """Running counts of one run; bytes are MQTT payloads as the server sends and receives them.

    `clock` gives seconds: real ones, or those of a simulation. At most `most` devices are counted by name.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, most: int | None = None) -> None:
        self._clock, self._most = clock, MAX_DEVICES if most is None else most
        self.uplink: Counter[str] = Counter()
        self.downlink: Counter[str] = Counter()
        self.refusals: Counter[tuple[str | None, str]] = Counter()
        self.rounds: Counter[str] = Counter()
        self.telemetry: dict[str, Telemetry] = {}
        self.seen: dict[str, float] = {}
        self._refused: dict[str | None, Counter[str]] = {}
        self.history: list[RoundRecord] = []
        self.deliveries: dict[str, Delivery] = {}
        self._names: set[str] = set()
        self.notes: deque[str] = deque(maxlen=LAST_NOTES)
        self._round_began = clock()
        self._before = (0, 0)

    def _name(self, device: str) -> str:
        """The name that a device is counted under: made-up ones must not fill the memory."""
        if device not in self._names:
            if len(self._names) >= self._most:
                return OTHERS
            self._names.add(device)
        return device

    def received(self, device: str, size: int) -> None:
        """Bytes came from a device."""
        self.uplink[self._name(device)] += size

    def sent(self, device: str, size: int) -> None:
        """Bytes went to a device."""
        self.downlink[self._name(device)] += size

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
        """Something happened that people should see: keep and return its words, and count a refusal."""
        if note.reason is not None:
            self.refused(note.device, note.reason)
        words = [note.device, note.what, f"({note.reason})" if note.reason else None, note.detail]
        self.notes.append(" ".join(word for word in words if word))
        return self.notes[-1]

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
        return {"uplink": dict(self.uplink), "downlink": dict(self.downlink), "refusals": refusals}

    def restore(self, traffic: Mapping[str, Any], history: Iterable[RoundRecord]) -> None:
        """Go on from the counts and the closed rounds of a run that was cut off."""
        self.uplink.update(traffic.get("uplink", {}))
        self.downlink.update(traffic.get("downlink", {}))
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
