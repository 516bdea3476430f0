"""The served model, and its replacement during operation.

A request keeps the model that was current when it began. The next model is loaded and tried first; a model
that cannot be loaded changes nothing.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from edge_client.data.dataset import Inputs, Pixels
from edge_client.inference.onnx_model import Frame, said_in_one_line
from edge_client.inference.providers.table import CPU
from edge_client.inference.service.health import HealthWriter
from edge_client.inference.service.metrics import RequestMetrics
from edge_client.inference.service.model_source import Model, Source
from edge_client.inference.service.requests import read_request, request_id
from edge_client.system.process_memory import give_back
from schemas.errors import ConfigError

log = logging.getLogger(__name__)

AT_ONCE, WAIT_S = 4, 5.0  # number of concurrent requests, and longest wait of another one in seconds


class Busy(Exception):
    """Too many requests are being worked on."""


class NotReady(Exception):
    """There is no model yet."""


@dataclass(frozen=True, eq=False)
class Answered:
    """An example [C, H, W], or of another shape, and a model's answer to it, also as `LoadedModel.result`.

    `frame` is that of a picture file.
    """

    model: Model
    example: Pixels
    answer: Inputs
    result: dict[str, Any]
    frame: Frame | None = None


class Predictor:
    """Answers requests with the current model of a source; thread-safe. `health` is kept for rollouts.

    With `keeps_last` the last example that was answered is `last`.
    """

    def __init__(
        self,
        source: Source,
        metrics: RequestMetrics,
        health: HealthWriter | None = None,
        *,
        keeps_last: bool = False,
    ) -> None:
        self._source, self.metrics, self._health = source, metrics, health
        self.keeps_last = keeps_last
        self.last: Answered | None = None
        self.turns = threading.BoundedSemaphore(AT_ONCE)
        self._reloading = threading.Lock()
        self._stamp: Any = None
        self.served: Model | None = None
        self.trouble = ""

    @property
    def model(self) -> dict[str, str] | None:
        """Version, digest and variant of the served model; None without one."""
        model = self.served
        return None if model is None else _words(model)

    @property
    def provider(self) -> str:
        """The provider that runs the served model; empty without one."""
        model = self.served
        return "" if model is None else model.loaded.provider

    def refresh(self) -> bool:
        """Serve the source's model if it changed; returns whether a model was loaded or refused."""
        with self._reloading:
            stamp = self._source.stamp()
            if stamp == self._stamp:
                return False
            self._stamp = stamp
            try:
                return self._exchange()
            except ConfigError as error:
                self._refuse_model(str(error))
                return True

    def load(self) -> None:
        """Serve the source's model; raises `ConfigError` if it cannot be served."""
        with self._reloading:
            self._stamp = self._source.stamp()
            self._exchange()

    def answer(self, body: bytes, *, top: int = 1) -> dict[str, Any]:
        """Classify the images in a message; raises `ConfigError` if it is invalid, `NotReady` and `Busy`."""
        model = self.served
        if model is None:
            raise NotReady(self.trouble or "no model yet")
        if not self.turns.acquire(timeout=WAIT_S):
            raise Busy(f"{AT_ONCE} requests are being worked on: try again")
        try:
            return self._answer(model, body, top)
        except ConfigError:
            raise
        except Exception:
            if self._health is not None:
                self._health.count_failure()
            raise
        finally:
            self.turns.release()

    def _answer(self, model: Model, body: bytes, top: int) -> dict[str, Any]:
        request = read_request(body, model.loaded, top=top)
        begun = time.perf_counter()
        answers = model.loaded.predict(request.images)
        seconds = time.perf_counter() - begun
        self.metrics.count_prediction(len(request.images), seconds)
        if self._health is not None:
            self._health.count_answer(seconds)
        results = [model.loaded.result(row, top=request.top, frame=request.frame) for row in answers]
        if self.keeps_last:
            self.last = Answered(model, request.images[-1].copy(), answers[-1], results[-1], request.frame)
        document: dict[str, Any] = {"model": _words(model), "results": results}
        if request.id is not None:
            document["id"] = request.id
        if request.notes:
            document["notes"] = list(request.notes)
        return document

    def _exchange(self) -> bool:
        if self._health is not None:
            self._health.loading()
        model = self._source.load_model()
        if self.served is not None and model.digest == self.served.digest:
            return False
        _try(model)
        before, self.served, self.trouble = self.served, model, ""
        if self._health is not None:
            self._health.on_loaded()
        self.metrics.reload("ok")
        on = "" if model.loaded.provider == CPU.name else f", on {model.loaded.provider}"
        log.info("serving %s (%s, %s%s)", model.version, model.variant, model.digest[:16], on)
        del before
        give_back()
        return True

    def _refuse_model(self, why: str) -> None:
        self.trouble = why
        self.metrics.reload("failed")
        if self._health is not None:
            self._health.load_failed()
        if self.served is None:
            log.warning("nothing is served: %s", why)
        else:
            log.warning("still serving %s: %s", self.served.version, why)


def answer_or_refuse(body: bytes, answer: Callable[[], dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    """Call `answer`; returns the outcome (see `RequestMetrics.request`), and the answer or the refusal."""
    try:
        return "ok", answer()
    except ConfigError as error:
        return "bad", refusal(body, error)
    except (Busy, NotReady) as error:
        return ("busy" if isinstance(error, Busy) else "unready"), refusal(body, error)
    except Exception as error:  # ends this request, not the service
        log.exception("a request failed", extra={"reason": "failed"})
        return "failed", refusal(body, error)


def refusal(body: bytes, error: Exception) -> dict[str, Any]:
    """The answer to a refused message: the error in one line, with the request's id, if any."""
    id = request_id(body)
    document = {"error": " ".join(str(error).split())[:500]}
    return document if id is None else {**document, "id": id}


def _try(model: Model) -> None:
    """Run once before requests do: a loaded model may still fail, and the first run is the slowest."""
    with said_in_one_line(model.loaded.path):
        model.loaded.predict(np.zeros((1, *model.loaded.input_shape), np.uint8))


def _words(model: Model) -> dict[str, str]:
    return {"version": model.version, "digest": model.digest, "variant": model.variant}
