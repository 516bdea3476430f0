"""`GET /metrics` over HTTP, and nothing else: no device is named there, and nothing can be done."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any

from prometheus_client import CollectorRegistry

from edge_server.observability.prometheus.address import Listen
from edge_server.observability.prometheus.exposition import exposition
from edge_server.transport.http_server import BoundedHttpServer
from schemas.errors import ConfigError

IDLE_S = 10.0
"""A request that takes longer to come is given up."""
MAX_CONNECTIONS = 16


class MetricsServer(BoundedHttpServer):
    """Answers from a registry."""

    request_queue_size = 2 * MAX_CONNECTIONS

    def __init__(self, listen: Listen, registry: CollectorRegistry) -> None:
        self.registry = registry
        super().__init__((listen.host, listen.port), Handler, most=MAX_CONNECTIONS)


class Handler(BaseHTTPRequestHandler):
    """One request."""

    timeout = IDLE_S
    server: MetricsServer

    def do_GET(self) -> None:
        """`/metrics`."""
        if self.path.partition("?")[0] != "/metrics":
            self._send(HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", b"there is GET /metrics\n")
            return
        self._send(HTTPStatus.OK, *exposition(self.server.registry, self.headers.get("Accept", "")))

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        """What the header `Server` says: not which Python this is."""
        return "edge-server"

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing per request."""


@contextlib.contextmanager
def serve_metrics(listen: Listen, registry: CollectorRegistry) -> Iterator[str]:
    """Serve as long as the block lasts; gives the URL. Raises `ConfigError` where it cannot listen."""
    try:
        door = MetricsServer(listen, registry)
    except OSError as error:
        remedy = "name another address with --metrics HOST:PORT; port 0 takes a free one"
        raise ConfigError(f"--metrics {listen}: cannot listen there: {error.strerror}; {remedy}") from error
    thread = threading.Thread(target=door.serve_forever, args=(0.1,), name="metrics", daemon=True)
    thread.start()
    try:
        yield f"http://{Listen(listen.host, door.server_port)}/metrics"
    finally:
        door.shutdown()
        thread.join()
        door.server_close()
