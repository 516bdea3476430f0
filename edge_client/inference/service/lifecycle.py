"""The prediction service: its request channels, and a watch that replaces the model."""

from __future__ import annotations

import os
import threading
import time
from typing import Protocol

from edge_client.inference.service.health_writer import ServiceNotes
from edge_client.inference.service.http import Web
from edge_client.inference.service.predictor import Predictor
from edge_client.system.process_memory import give_back
from edge_client.system.watchdog import watchdog_of

ENDS_WITHIN_S = 0.1
"""Seconds that the HTTP server may take to notice that it must close."""


class RequestChannel(Protocol):
    """A way for requests to come in, beside HTTP."""

    def open(self) -> None:
        """Begin."""
        ...

    def close(self) -> None:
        """End, with what has begun."""
        ...


class PredictionService:
    """Runs until `stop`; looks every `poll_s` seconds, and when told to, whether there is another model."""

    def __init__(
        self,
        predictor: Predictor,
        web: Web,
        *,
        other: RequestChannel | None = None,
        poll_s: float = 1.0,
        notes: ServiceNotes | None = None,
    ) -> None:
        self._notes, self._watchdog = notes, watchdog_of(os.environ)
        self._predictor, self._web, self._other, self._poll_s = predictor, web, other, poll_s
        self._look, self._stopped = threading.Event(), threading.Event()

    def run(self) -> None:
        """Answer until stopped; requests that have begun are answered before it returns."""
        http = threading.Thread(target=self._web.serve_forever, args=(ENDS_WITHIN_S,), name="http")
        http.start()
        if self._other is not None:
            self._other.open()
        self._watchdog.ready()
        try:
            tidied = -1
            while not self._stopped.is_set():
                self._look.wait(self._poll_s)
                self._look.clear()
                self._watchdog.alive(time.monotonic())
                self._predictor.refresh()
                if self._notes is not None:
                    self._notes.save()
                # Only after work: to look through all objects takes a small board a while.
                if tidied != (tidied := self._predictor.tally.answered):
                    give_back()
        finally:
            self._watchdog.stopping()
            self._web.close()
            http.join()
            if self._other is not None:
                self._other.close()
            if self._notes is not None:
                self._notes.close()

    def look_now(self) -> None:
        """Look for another model soon; may be called from a signal handler."""
        self._look.set()

    def stop(self) -> None:
        """End soon; may be called from a signal handler."""
        self._stopped.set()
        self._look.set()
