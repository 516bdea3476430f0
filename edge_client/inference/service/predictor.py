"""The model that serves, and its exchange for another one while requests go on.

A request takes the model that is current when it begins and keeps it to its end. The next one is loaded and
tried beside it first; what cannot be loaded changes nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import asdict
from typing import Any

import numpy as np

from edge_client.inference.service.health_writer import ServiceNotes
from edge_client.inference.service.metrics import RequestMetrics
from edge_client.inference.service.model_source import Model, Source
from edge_client.inference.service.requests import mark_of, read_asked
from edge_client.system.process_memory import give_back
from schemas.errors import ConfigError

log = logging.getLogger(__name__)

BATCH = 16
"""Images at once: larger batches are hardly faster and take more memory."""
AT_ONCE = 4
WAIT_S = 5.0
"""So many requests are worked on together, and so long another one waits for its turn."""


class Busy(Exception):
    """Too many requests are being worked on."""


class NotReady(Exception):
    """There is no model yet."""


class Predictor:
    """Answers requests with the current model of a source; any thread may ask.

    `notes` are for those who watch a model after it was switched to.
    """

    def __init__(self, source: Source, tally: RequestMetrics, notes: ServiceNotes | None = None) -> None:
        self._source, self.tally, self._notes = source, tally, notes
        self._turns = threading.BoundedSemaphore(AT_ONCE)
        self._reloading = threading.Lock()
        self._stamp: Any = None
        self._model: Model | None = None
        self.trouble = ""

    @property
    def model(self) -> dict[str, str] | None:
        """What serves, in words; None where nothing does."""
        model = self._model
        return None if model is None else _words(model)

    def refresh(self) -> bool:
        """Serve the source's model if it is another one; returns whether one was loaded, or refused."""
        with self._reloading:
            stamp = self._source.stamp()
            if stamp == self._stamp:
                return False
            self._stamp = stamp
            return self._exchange()

    def answer(self, body: bytes, *, top: int = 1) -> dict[str, Any]:
        """What the model says of the images in a message (see `asked`).

        Raises `ConfigError` for a message that is none, `NotReady` and `Busy`.
        """
        model = self._model
        if model is None:
            raise NotReady(self.trouble or "no model yet")
        if not self._turns.acquire(timeout=WAIT_S):
            raise Busy(f"{AT_ONCE} requests are being worked on: try again")
        try:
            return self._answer(model, body, top)
        except ConfigError:
            raise
        except Exception:
            if self._notes is not None:
                self._notes.failed()
            raise
        finally:
            self._turns.release()

    def _answer(self, model: Model, body: bytes, top: int) -> dict[str, Any]:
        asked = read_asked(body, model.loaded, top=top)
        begun = time.perf_counter()
        probabilities = model.loaded.predict(asked.images, batch_size=BATCH)
        seconds = time.perf_counter() - begun
        self.tally.predicted(len(asked.images), seconds)
        if self._notes is not None:
            self._notes.answered(seconds)
        ranked = [model.loaded.rank(row, top=asked.top) for row in probabilities]
        results = [{"top": [asdict(one) for one in each]} for each in ranked]
        document: dict[str, Any] = {"model": _words(model), "results": results}
        if asked.id is not None:
            document["id"] = asked.id
        if asked.notes:
            document["notes"] = list(asked.notes)
        return document

    def _exchange(self) -> bool:
        if self._notes is not None:
            self._notes.tries()
        try:
            model = self._source.load()
            if self._model is not None and model.digest == self._model.digest:
                return False
            _try(model)
        except ConfigError as error:
            self._refused(str(error))
            return True
        before, self._model, self.trouble = self._model, model, ""
        if self._notes is not None:
            self._notes.serves()
        self.tally.reload("ok")
        log.info("serving %s (%s, %s)", model.version, model.variant, model.digest[:16])
        del before
        give_back()
        return True

    def _refused(self, why: str) -> None:
        self.trouble = why
        self.tally.reload("failed")
        if self._notes is not None:
            self._notes.refuses()
        if self._model is None:
            log.warning("nothing is served: %s", why)
        else:
            log.warning("still serving %s: %s", self._model.version, why)


def refusal(body: bytes, error: Exception) -> dict[str, Any]:
    """The answer to a message that got none: why, in one line, under the asker's own mark."""
    mark = mark_of(body)
    document = {"error": " ".join(str(error).split())[:500]}
    return document if mark is None else {**document, "id": mark}


def _try(model: Model) -> None:
    """Run once before anybody waits: what loads may still fail, and the first run is the slowest."""
    shape = model.loaded.input_shape
    try:
        model.loaded.predict(np.zeros((1, *shape), np.uint8))
    except ConfigError:
        raise
    except Exception as error:
        # onnxruntime's exceptions share no base class but Exception.
        raise ConfigError(
            f"{model.loaded.path} cannot be run: {str(error).split(chr(10))[0][:200]}"
        ) from error


def _words(model: Model) -> dict[str, str]:
    return {"version": model.version, "digest": model.digest, "variant": model.variant}
