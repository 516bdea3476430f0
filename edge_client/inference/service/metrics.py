"""What the service counts of itself, and how Prometheus reads it (text format 0.0.4)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping

from edge_client.system.process_memory import resident_bytes

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class RequestMetrics:
    """Counts of one service; any thread may add to them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, str]] = Counter()
        self._reloads: Counter[str] = Counter()
        self._buckets: Counter[float] = Counter()
        self._images, self._answered, self._seconds = 0, 0, 0.0

    @property
    def answered(self) -> int:
        """How many requests the model has answered."""
        return self._answered

    def request(self, door: str, outcome: str) -> None:
        """A request at `door` ended with `ok`, `bad`, `busy`, `unready` or `failed`."""
        with self._lock:
            self._requests[door, outcome] += 1

    def predicted(self, images: int, seconds: float) -> None:
        """Count classified images and the seconds that they took."""
        with self._lock:
            self._images += images
            self._answered += 1
            self._seconds += seconds
            self._buckets[next((bound for bound in BOUNDS_S if seconds <= bound), float("inf"))] += 1

    def reload(self, outcome: str) -> None:
        """A model was loaded (`ok`) or refused (`failed`)."""
        with self._lock:
            self._reloads[outcome] += 1

    def text(self, model: Mapping[str, str] | None) -> str:
        """Everything that was counted, and which model serves."""
        with self._lock:
            return "".join(f"{line}\n" for line in self._lines(model))

    def _lines(self, model: Mapping[str, str] | None) -> Iterator[str]:
        yield from _head("edge_serve_ready", "gauge", "Whether there is a model to serve.")
        yield f"edge_serve_ready {int(model is not None)}"
        yield from _head("edge_serve_model_info", "gauge", "The model that serves.")
        if model is not None:
            yield f"edge_serve_model_info{_labels(model)} 1"
        yield from _head("edge_serve_requests_total", "counter", "Requests by door and outcome.")
        for (door, outcome), count in sorted(self._requests.items()):
            yield f"edge_serve_requests_total{_labels({'door': door, 'outcome': outcome})} {count}"
        yield from _head("edge_serve_images_total", "counter", "Images classified.")
        yield f"edge_serve_images_total {self._images}"
        yield from _head("edge_serve_reloads_total", "counter", "Models loaded or refused.")
        for outcome, count in sorted(self._reloads.items()):
            yield f"edge_serve_reloads_total{_labels({'outcome': outcome})} {count}"
        yield from _head("edge_serve_predict_seconds", "histogram", "Time in the model, per request.")
        below = 0
        for bound in BOUNDS_S:
            below += self._buckets[bound]
            yield f'edge_serve_predict_seconds_bucket{{le="{bound:g}"}} {below}'
        yield f'edge_serve_predict_seconds_bucket{{le="+Inf"}} {self._answered}'
        yield f"edge_serve_predict_seconds_sum {self._seconds:.6f}"
        yield f"edge_serve_predict_seconds_count {self._answered}"
        yield from _head("process_resident_memory_bytes", "gauge", "Memory that the process holds.")
        yield f"process_resident_memory_bytes {resident_bytes()}"


def _head(name: str, kind: str, help: str) -> tuple[str, str]:
    return f"# HELP {name} {help}", f"# TYPE {name} {kind}"


def _labels(values: Mapping[str, str]) -> str:
    quoted = (f'{name}="{_escaped(value)}"' for name, value in values.items())
    return "{" + ",".join(quoted) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
