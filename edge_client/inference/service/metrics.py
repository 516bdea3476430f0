"""The service's metrics in Prometheus' text format 0.0.4."""

import threading
from collections import Counter
from collections.abc import Iterator, Mapping

from edge_client.system.process_memory import resident_bytes

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class RequestMetrics:
    """Counts of one service; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, str]] = Counter()
        self._reloads: Counter[str] = Counter()
        self._buckets: Counter[float] = Counter()
        self._images, self._answered, self._seconds = 0, 0, 0.0

    @property
    def answered_requests(self) -> int:
        return self._answered

    def request(self, channel: str, outcome: str) -> None:
        """Count a request over `channel` with its outcome: `ok`, `bad`, `busy`, `unready` or `failed`."""
        with self._lock:
            self._requests[channel, outcome] += 1

    def count_prediction(self, images: int, seconds: float) -> None:
        with self._lock:
            self._images += images
            self._answered += 1
            self._seconds += seconds
            self._buckets[next((bound for bound in BOUNDS_S if seconds <= bound), float("inf"))] += 1

    def reload(self, outcome: str) -> None:
        """Count a loaded (`ok`) or refused (`failed`) model."""
        with self._lock:
            self._reloads[outcome] += 1

    def text(self, model: Mapping[str, str] | None, provider: str = "") -> str:
        with self._lock:
            return "".join(f"{line}\n" for line in self._lines(model, provider))

    def _lines(self, model: Mapping[str, str] | None, provider: str) -> Iterator[str]:
        yield from _head("edge_serve_ready", "gauge", "Whether there is a model to serve.")
        yield f"edge_serve_ready {int(model is not None)}"
        yield from _head("edge_serve_model_info", "gauge", "The model that serves.")
        if model is not None:
            yield f"edge_serve_model_info{_labels(model)} 1"
        yield from _head("edge_serve_provider_info", "gauge", "onnxruntime's provider that runs the model.")
        if provider:
            yield f"edge_serve_provider_info{_labels({'provider': provider})} 1"
        yield from _head("edge_serve_requests_total", "counter", "Requests by channel and outcome.")
        for (channel, outcome), count in sorted(self._requests.items()):
            yield f"edge_serve_requests_total{_labels({'door': channel, 'outcome': outcome})} {count}"
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
    quoted = (f'{name}="{_escape_label(value)}"' for name, value in values.items())
    return "{" + ",".join(quoted) + "}"


def _escape_label(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
