"""The recorder: a connection to the broker whose messages become rows, until it is stopped."""

import logging
import queue
import sqlite3
import time
from collections.abc import Callable

from edge_client.agent.recording.row_maker import RowMaker, Wanted
from edge_client.data.tables.recorded import ExampleStore
from edge_client.transport import broker_link, mqtt_client
from schemas.errors import ConfigError, PeerError, format_count

log = logging.getLogger(__name__)

REPORT_S = 600.0  # Seconds between two lines about progress


class Recorder:
    """Records until `stop`; the link reconnects by itself."""

    def __init__(
        self, address: broker_link.BrokerAddress, wanted: Wanted, store: ExampleStore, *, client_id: str
    ) -> None:
        self._address, self._wanted, self._store = address, wanted, store
        self._rows = RowMaker(wanted, store)
        self._inbox: broker_link.Inbox = queue.SimpleQueue()
        self._link = mqtt_client.Link(address, self._inbox, client_id=client_id, filters=wanted.topics)
        self._by_clock = wanted.ident is None
        self._known: set[str] = set()
        self._waits_for: tuple[str, ...] | None = None
        self.counts = self._rows.counts

    def stop(self) -> None:
        """End after the messages that have arrived; may be called by a signal handler."""
        self._inbox.put(None)

    def run(self) -> None:
        """Record; `ConfigError` if no further try to connect can succeed."""
        self._link.open()
        begun = time.monotonic()
        next_row, next_report = begun + self._wanted.every_s, begun + REPORT_S
        try:
            while True:
                now = time.monotonic()
                if self._by_clock and now >= next_row:
                    self._run_guarded("a row", self._tick)
                    next_row = max(next_row + self._wanted.every_s, now)
                if now >= next_report:
                    log.info("%s", self.progress())
                    next_report = now + REPORT_S
                try:
                    event = self._inbox.get(timeout=max(0.0, min(next_row, next_report) - now))
                except queue.Empty:
                    continue
                if event is None:
                    return
                self._handle(event)
        finally:
            self._link.close()

    def progress(self) -> str:
        counts = self.counts
        parts = [f"{format_count(counts.rows, 'row')} recorded, {len(self._store)} in the store"]
        if self._wanted.label is not None:
            parts.append(f"{counts.labelled} labelled")
        if counts.incomplete:
            parts.append(f"{counts.incomplete} incomplete")
        if counts.refused:
            parts.append(f"{format_count(counts.refused.total(), 'message')} refused")
        return ", ".join(parts)

    def _tick(self) -> None:
        self._rows.tick(time.time())
        missing = tuple(self._rows.missing)
        if missing != self._waits_for:
            self._waits_for = missing
            if missing:
                log.info("no rows are recorded: no value of %s", ", ".join(missing))
            else:
                log.info("rows are recorded: all %d columns have a value", len(self._wanted.readings))

    def _handle(self, event: object) -> None:
        match event:
            case broker_link.Arrived(topic, payload):
                self._run_guarded(topic, lambda: self._rows.take(topic, payload, now=time.time()))
            case broker_link.LinkUp():
                log.info("recording %d topics of %s", len(self._wanted.topics), self._address)
                self._link.handle(event)
            case broker_link.LinkDown(reason, lasting=True):
                raise ConfigError(f"no connection to {self._address}: {reason}")
            case broker_link.LinkDown(reason):
                log.warning("no connection to %s: %s; trying again", self._address, reason)
                self._rows.forget()
                self._link.handle(event)
            case broker_link.NotGranted(_, reason):
                log.warning("%s does not let this recorder subscribe: %s", self._address, reason)
            case broker_link.Confirmed():
                self._link.handle(event)

    def _run_guarded(self, place: str, act: Callable[[], object]) -> None:
        """Do this; what a sensor or a full disk causes is counted, and logged once for each topic."""
        try:
            act()
        except PeerError as error:
            self._warn(place, str(error))
        except sqlite3.Error as error:
            self.counts.refused["store"] += 1
            self._warn("the store", f"it cannot be written: {error}")

    def _warn(self, place: str, trouble: str) -> None:
        if place not in self._known:
            self._known.add(place)
            log.warning("%s: %s (further messages that are refused there are only counted)", place, trouble)
