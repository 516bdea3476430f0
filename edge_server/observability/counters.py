"""Running counts of a run: bytes, refusals, telemetry, closed rounds, delivered models."""

import contextlib
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from edge_server.rounds import events, fleet
from edge_server.rounds.link_bytes import IndirectTraffic, LinkBytes
from edge_server.storage.records import RoundRecord
from schemas.messages import Delivery, Telemetry

# Histograms of durations, of constant size however long a run takes.

BOUNDS_S = (0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0)


@dataclass(frozen=True)
class DurationHistogram:
    """Counts of durations per bound of `BOUNDS_S` and, last, of longer ones; `seconds` is their sum."""

    counts: tuple[int, ...] = (0,) * (len(BOUNDS_S) + 1)
    seconds: float = 0.0

    def with_sample(self, seconds: float) -> "DurationHistogram":
        place = next((i for i, bound in enumerate(BOUNDS_S) if seconds <= bound), len(BOUNDS_S))
        counts = tuple(count + (i == place) for i, count in enumerate(self.counts))
        return replace(self, counts=counts, seconds=self.seconds + seconds)


class Durations:
    """Duration histograms by name; thread-safe. `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._histograms: dict[str, DurationHistogram] = {}

    def record(self, name: str, seconds: float) -> None:
        with self._lock:
            self._histograms[name] = self._histograms.get(name, DurationHistogram()).with_sample(seconds)

    @contextlib.contextmanager
    def time_block(self, name: str) -> Iterator[None]:
        """Record how long the block takes, also if it raises."""
        began = self._clock()
        try:
            yield
        finally:
            self.record(name, self._clock() - began)

    def histograms(self) -> Mapping[str, DurationHistogram]:
        with self._lock:
            return dict(self._histograms)


class PhaseClock:
    """Durations of a run's ended phases."""

    def __init__(self) -> None:
        self.durations = Durations()
        self._phase, self._since = "", 0.0

    def at(self, phase: str, now: float) -> None:
        """Note that the run is in this phase at `now` (seconds)."""
        if phase == self._phase:
            return
        if self._phase:
            self.durations.record(self._phase, now - self._since)
        self._phase, self._since = phase, now


LAST_NOTES = 5
ALL = "(all)"  # Counted under this name: what is published once for many devices. No device has this name.
OTHERS = "(others)"
"""Counted under this name: devices beyond the limit of separately counted names. No device has this name."""


class DeviceNames:
    """The device names that are counted separately: at most `limit`, `known` devices before others."""

    def __init__(self, limit: int, known: Callable[[str], bool]) -> None:
        self._limit, self._known = limit, known
        self._names: set[str] = set()
        self._unknown: deque[str] = deque()

    def admit(self, device: str) -> tuple[str, str | None]:
        """The name to count a device under, and the name that it displaces, if any."""
        if device in self._names:
            return device, None
        known, displaced = self._known(device), None
        if len(self._names) >= self._limit:
            displaced = self._displace_oldest() if known else None
            if displaced is None:
                return OTHERS, None
        self._names.add(device)
        if not known:
            self._unknown.append(device)
        return device, displaced

    def _displace_oldest(self) -> str | None:
        """Remove and return the oldest name that is still unknown."""
        while self._unknown:
            name = self._unknown.popleft()
            if not self._known(name):
                self._names.discard(name)
                return name
        return None


class RunCounters:
    """Running counts of one run.

    `uplink` and `downlink` are MQTT payload bytes received and sent by the server, a broadcast counted once;
    `over_link` gives the bytes over one device's own link. `clock` returns seconds, real or simulated.
    At most `most` devices are counted by name; devices that are `known` take precedence.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        most: int | None = None,
        known: Callable[[str], bool] = lambda device: False,
    ) -> None:
        self._clock = clock
        self._names = DeviceNames(fleet.MAX_DEVICES if most is None else most, known)
        self.uplink: Counter[str] = Counter()
        self.downlink: Counter[str] = Counter()
        self.indirect = IndirectTraffic()
        self.refusals: Counter[tuple[str | None, str]] = Counter()
        self._refused: dict[str | None, Counter[str]] = {}
        self.rounds: Counter[str] = Counter()
        self.telemetry: dict[str, Telemetry] = {}
        self.seen: dict[str, float] = {}
        self.history: list[RoundRecord] = []
        self.deliveries: dict[str, Delivery] = {}
        self.notes: deque[str] = deque(maxlen=LAST_NOTES)
        self._at_round_start = (0, 0, clock())

    def _name(self, device: str) -> str:
        """The name that a device is counted under; invented names must not fill the memory."""
        name, displaced = self._names.admit(device)
        if displaced is not None:
            self._forget(displaced)
        return name

    def _forget(self, name: str) -> None:
        for counts in (self.uplink, self.downlink, self.indirect.shared, self.indirect.stored):
            counts[OTHERS] += counts.pop(name, 0)
        for reason, count in self._refused.pop(name, Counter()).items():
            del self.refusals[name, reason]
            self._refuse(OTHERS, reason, count)
        self.telemetry.pop(name, None)
        self.seen.pop(name, None)

    def count_received(self, device: str, size: int) -> None:
        self.uplink[self._name(device)] += size

    def count_sent(self, device: str, size: int) -> None:
        self.downlink[self._name(device)] += size

    def count_announced(self, devices: Iterable[str], size: int) -> None:
        """Count bytes sent once to all; `devices` are those that were connected."""
        self.count_sent(ALL, size)
        self.indirect.count_announced(devices, size)

    def count_published(self, devices: Iterable[str], attempt: int, size: int) -> None:
        """Count bytes of an attempt's broadcast, sent once and received by `devices`."""
        self.count_sent(ALL, size)
        self.indirect.count_published(devices, attempt, size)

    def over_link(self, device: str) -> LinkBytes:
        received = self.downlink[device] + self.indirect.shared[device]
        return LinkBytes(received, self.uplink[device] + self.indirect.stored[device])

    def count_refusal(self, device: str | None, reason: str) -> None:
        """Count one refusal; `device` is None where the sender is unknown."""
        self._refuse(None if device is None else self._name(device), str(reason), 1)

    def _refuse(self, name: str | None, reason: str, count: int) -> None:
        self.refusals[name, reason] += count
        self._refused.setdefault(name, Counter())[reason] += count

    def refused_of(self, device: str) -> dict[str, int]:
        own = self._refused.get(device)
        return dict(sorted(own.items())) if own else {}

    def note_contact(self, device: str) -> None:
        """Note the time (seconds since 1970) at which a device sent something."""
        if self._name(device) is not OTHERS:
            self.seen[device] = time.time()

    def keep_telemetry(self, telemetry: Telemetry) -> None:
        if self._name(telemetry.device) is not OTHERS:
            self.telemetry[telemetry.device] = telemetry

    def count_note(self, note: events.Note) -> str:
        """Count the refusal that a note reports, if any, and return the note's text.

        The last `LAST_NOTES` texts that are not routine are kept.
        """
        if note.reason is not None:
            self.count_refusal(note.device, note.reason)
        if not note.routine:
            self.notes.append(note.words)
        return note.words

    def begin_round(self) -> None:
        self._at_round_start = (self.uplink.total(), self.downlink.total(), self._clock())

    def round_figures(self) -> tuple[int, int, float]:
        """Uplink bytes, downlink bytes and seconds since the round began."""
        up, down, began = self._at_round_start
        return self.uplink.total() - up, self.downlink.total() - down, self._clock() - began

    def traffic(self) -> dict[str, Any]:
        refusals = [[device, reason, count] for (device, reason), count in self.refusals.items()]
        return {
            "uplink": dict(self.uplink),
            "downlink": dict(self.downlink),
            "shared": dict(self.indirect.shared),
            "stored": dict(self.indirect.stored),
            "refusals": refusals,
        }

    def restore(self, traffic: Mapping[str, Any], history: Iterable[RoundRecord]) -> None:
        self.uplink.update(traffic.get("uplink", {}))
        self.downlink.update(traffic.get("downlink", {}))
        self.indirect.restore(traffic)
        for device, reason, count in traffic.get("refusals", ()):
            self._refuse(device, reason, count)
        for record in history:
            self.add_round(record)
        self.begin_round()

    def add_round(self, record: RoundRecord) -> None:
        self.history.append(record)
        self.rounds.update(record.completed)

    def add_delivery(self, delivery: Delivery) -> None:
        self.deliveries[delivery.device] = delivery
