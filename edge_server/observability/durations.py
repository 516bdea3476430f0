"""Histograms of durations, of constant size however long a run takes."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

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
