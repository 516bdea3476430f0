"""`GET /metrics` over HTTP: prometheus_client's WSGI application behind a server with bounded connections.

prometheus_client's own server serves the metrics at every path, names the Python version, and has neither a
connection limit nor a timeout for clients that send nothing.
"""

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

from edge_server.observability.prometheus.address import Listen
from edge_server.transport.http_server import BoundedHttpServer
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

IDLE_S = 10.0
"""A connection that sends nothing for this long, or whose request has not arrived after it, is closed."""
MAX_CONNECTIONS = 16
SERVER = ("Server", "edge-server")


class MetricsServer(BoundedHttpServer, WSGIServer):
    """Serves a WSGI application to at most `MAX_CONNECTIONS` clients at once."""

    request_queue_size = 2 * MAX_CONNECTIONS


class _Handler(WSGIRequestHandler):
    timeout = IDLE_S

    def setup(self) -> None:
        super().setup()
        self.connection.read_by = time.monotonic() + IDLE_S

    def log_message(self, format: str, *args: Any) -> None:
        """Log no requests."""


def metrics_app(registry: CollectorRegistry) -> "WSGIApplication":
    """The registry's metrics at `/metrics`; 404 at any other path."""
    metrics = make_wsgi_app(registry, disable_compression=True)

    def app(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        if environ["PATH_INFO"] != "/metrics":
            start_response("404 Not Found", [("Content-Type", "text/plain; charset=utf-8"), SERVER])
            return [b"there is GET /metrics\n"]
        answer: Iterable[bytes] = metrics(
            environ, lambda status, headers: start_response(status, [*headers, SERVER])
        )
        return answer

    return app


@contextlib.contextmanager
def serve_metrics(listen: Listen, registry: CollectorRegistry, *, option: str = "--metrics") -> Iterator[str]:
    """Serve until the block ends; yields the URL. Raises `ConfigError` where the address cannot be bound."""
    try:
        server = MetricsServer((listen.host, listen.port), _Handler, most=MAX_CONNECTIONS)
    except OSError as error:
        remedy = f"name another address with {option} HOST:PORT; port 0 takes a free one"
        raise ConfigError(
            f"cannot listen there: {error.strerror}", key=f"{option} {listen}", remedy=remedy
        ) from error
    server.set_app(metrics_app(registry))
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="metrics", daemon=True)
    thread.start()
    try:
        yield f"http://{Listen(listen.host, server.server_port)}/metrics"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
