"""The prediction service: its request channels, and the loop that replaces the model."""

import os
import threading
import time
from typing import Protocol

from edge_client.inference.service.health import HealthWriter
from edge_client.inference.service.http import PredictionServer
from edge_client.inference.service.predictor import Predictor
from edge_client.system import process_memory, watchdog

ENDS_WITHIN_S = 0.1  # seconds within which the HTTP server notices that it must close


class RequestChannel(Protocol):
    """The MQTT channel, whose module is not imported here because it needs paho."""

    def open(self) -> None: ...

    def close(self) -> None:
        """Stop after the running requests."""


class PredictionService:
    """Runs until `stop`; checks for another model every `poll_s` seconds and on `look_now`."""

    def __init__(
        self,
        predictor: Predictor,
        web: PredictionServer,
        *,
        mqtt: RequestChannel | None = None,
        poll_s: float = 1.0,
        health: HealthWriter | None = None,
    ) -> None:
        self._health, self._watchdog = health, watchdog.watchdog_of(os.environ)
        self._predictor, self._web, self._mqtt, self._poll_s = predictor, web, mqtt, poll_s
        self._look, self._stopped = threading.Event(), threading.Event()

    def run(self) -> None:
        """Answer requests until stopped, including those that are running then."""
        http = threading.Thread(target=self._web.serve_forever, args=(ENDS_WITHIN_S,), name="http")
        http.start()
        if self._mqtt is not None:
            self._mqtt.open()
        self._watchdog.ready()
        try:
            tidied = -1
            while not self._stopped.is_set():
                self._look.wait(self._poll_s)
                self._look.clear()
                self._watchdog.alive(time.monotonic())
                self._predictor.refresh()
                if self._health is not None:
                    self._health.save()
                # Only after work, because it takes a small board long to look through all objects.
                if tidied != (tidied := self._predictor.metrics.answered_requests):
                    process_memory.give_back()
        finally:
            self._watchdog.stopping()
            self._web.close()
            http.join()
            if self._mqtt is not None:
                self._mqtt.close()
            if self._health is not None:
                self._health.close()

    def look_now(self) -> None:
        """Check for another model soon; may be called from a signal handler."""
        self._look.set()

    def stop(self) -> None:
        """End soon; may be called from a signal handler."""
        self._stopped.set()
        self._look.set()
