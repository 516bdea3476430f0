"""Delivery of notifications: one thread per receiver, so that one that is down delays no other."""

import logging
import threading
import time
from collections.abc import Callable, Mapping

from edge_server.fleet.alerts.alert import Notification
from edge_server.fleet.alerts.store import AlertStore, Waiting
from schemas.errors import EdgeError

log = logging.getLogger(__name__)

FIRST_DELAY_S, LONGEST_DELAY_S = 5.0, 600.0
GIVE_UP_S = 86_400.0  # Seconds after which a notification is dropped
POLL_S = 5.0  # Seconds between two looks at the file for notifications of other processes
END_S = 15.0


class DeliveryError(EdgeError):
    """A receiver did not take a notification: where, why, remedy."""


Deliver = Callable[[Notification], None]  # Delivers a notification, or raises `DeliveryError`


def delay_s(attempts: int) -> float:
    return float(min(LONGEST_DELAY_S, FIRST_DELAY_S * 2 ** min(attempts - 1, 20)))


class DeliveryThread:
    """Delivers one receiver's notifications in order; each is repeated until it is taken or too old."""

    def __init__(
        self,
        receiver: str,
        deliver: Deliver,
        store: AlertStore,
        *,
        clock: Callable[[], float] = time.time,
        delay: Callable[[int], float] = delay_s,
    ) -> None:
        self._receiver, self._deliver, self._store = receiver, deliver, store
        self._clock, self._delay = clock, delay
        self._wake, self._ending = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"alerts-{receiver}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        self._wake.set()

    def end(self, patience_s: float = END_S) -> None:
        """Stop after the attempt that is under way; what waits stays in the file."""
        self._ending.set()
        self._wake.set()
        self._thread.join(timeout=patience_s)

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                pause = self._turn()
            except Exception:
                log.exception("alerts: notifications for %s cannot be delivered", self._receiver)
                pause = POLL_S
            if pause > 0:
                self._wake.wait(pause)
                self._wake.clear()

    def _turn(self) -> float:
        """Try the oldest notification; returns the seconds until there is something to do."""
        waiting, now = self._store.first(self._receiver), self._clock()
        if waiting is None:
            return POLL_S
        # A time that is too far ahead was written before the clock was set back.
        if now < waiting.due_at <= now + LONGEST_DELAY_S:
            return min(POLL_S, waiting.due_at - now)
        self._attempt(waiting, now)
        return 0.0

    def _attempt(self, waiting: Waiting, now: float) -> None:
        try:
            self._deliver(waiting.notification)
        except DeliveryError as error:
            self._on_failure(waiting, str(error), now)
        except Exception as error:
            # A fault of a receiver's module must not be tried without end and without pause.
            log.exception("alerts: %s has failed", self._receiver)
            self._on_failure(waiting, f"{type(error).__name__}: {error}", now)
        else:
            self._store.forget_delivered(waiting.number)

    def _on_failure(self, waiting: Waiting, error: str, now: float) -> None:
        if now - waiting.made_at >= GIVE_UP_S:
            rule = waiting.notification.rule
            log.error("alerts: %s: a notification of %s is dropped: %s", self._receiver, rule, error)
            self._store.forget_delivered(waiting.number)
            return
        if waiting.attempts == 0:
            log.warning("alerts: %s: %s; trying again", self._receiver, error)
        self._store.note_failure(waiting.number, error, due_at=now + self._delay(waiting.attempts + 1))


class Deliveries:
    def __init__(self, receivers: Mapping[str, Deliver], store: AlertStore) -> None:
        self._threads = [DeliveryThread(name, deliver, store) for name, deliver in receivers.items()]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        for thread in self._threads:
            thread.wake()

    def end(self) -> None:
        until = time.monotonic() + END_S
        for thread in self._threads:
            thread.end(max(0.1, until - time.monotonic()))
