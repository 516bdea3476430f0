"""The dashboard's server: uvicorn in its own thread, bound before its address is printed."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import h11
import uvicorn
from prometheus_client.registry import Collector
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from edge_client.system.bounded_listener import BoundedListener
from edge_server.observability.dashboard.access import access_of
from edge_server.observability.dashboard.app import make_app
from edge_server.observability.dashboard.bind_address import BindAddress, bind_socket, url_of
from edge_server.observability.dashboard.feed import Feed
from edge_server.observability.prometheus.collector import exposition, run_registry
from edge_server.observability.snapshot import Snapshot
from schemas.errors import EdgeError

MAX_CONNECTIONS, PER_ADDRESS = 512, 128
REQUEST_S, MAX_WAITING = 15.0, 112
"""Seconds in which a request arrives as a whole, and connections that may wait for one to arrive."""
GRACE_S = 3  # Seconds that pages have to read the last events
START_S = 30.0
TlsPair = tuple[Path, Path]  # Files of a certificate chain and of its key


@dataclass(frozen=True)
class RunningDashboard:
    url: str
    feed: Feed

    def show(self, snapshot: Snapshot) -> None:
        self.feed.show(snapshot)


@contextlib.contextmanager
def serve_dashboard(
    path: Path,
    listen: BindAddress,
    *,
    token: str | None,
    live: bool,
    registry: Path | None = None,
    more: Sequence[BaseRoute] = (),
) -> Iterator[RunningDashboard]:
    """Serve the run in `path`, and `more` routes, until the block ends.

    Raises `ConfigError` where the address cannot be bound.
    """
    bound = bind_socket(listen, token)
    address, port = bound.getsockname()[:2]
    feed = Feed(path, live=live, registry=registry)
    url = url_of(listen[0], port)
    app = make_app(feed, access_of(listen[0], port, token, bound=address), more=more)
    with serving(app, bound, url=url, ended=feed.close):
        yield RunningDashboard(url, feed)


@contextlib.contextmanager
def serving(
    app: ASGIApp,
    bound: socket.socket,
    *,
    url: str,
    name: str = "dashboard",
    tls: TlsPair | None = None,
    ended: Callable[[], None] = lambda: None,
    proxies: Sequence[str] = (),
) -> Iterator[None]:
    """Serve an application at a listening socket, in a thread, until the block ends and calls `ended`.

    Connections from `proxies` are those of many visitors.
    """
    server = _Uvicorn(app, tls)
    listener = BoundedListener(
        bound, most=MAX_CONNECTIONS, per_address=PER_ADDRESS, shared=frozenset(proxies)
    )
    thread = threading.Thread(target=server.run, args=([listener],), name=name, daemon=True)
    thread.start()
    try:
        if not server.is_up.wait(START_S) or not thread.is_alive():
            raise EdgeError(f"the {name} at {url} did not start")
        yield
    finally:
        ended()
        server.should_exit = True
        thread.join()
        listener.close()


class _PunctualProtocol(H11Protocol):
    """Closes a connection whose request has not arrived as a whole after `REQUEST_S`.

    If `MAX_WAITING` wait, the oldest one is closed for a new one: half-sent requests keep nobody out. A
    connection that waits for a further request is closed by uvicorn's own timeout.
    """

    def __init__(
        self, *args: Any, waiting: "dict[_PunctualProtocol, asyncio.TimerHandle]", **more: Any
    ) -> None:
        super().__init__(*args, **more)
        self._waiting = waiting

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._wait(over=True)

    def _wait(self, *, over: bool = False) -> None:
        if over or self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            if timer := self._waiting.pop(self, None):
                timer.cancel()
        elif self not in self._waiting:
            self._waiting[self] = self.loop.call_later(REQUEST_S, self.transport.abort)
            if len(self._waiting) > MAX_WAITING:
                oldest = next(iter(self._waiting))
                oldest._wait(over=True)
                oldest.transport.abort()


class _Uvicorn(uvicorn.Server):
    """Sets `is_up` once it serves; signal handlers stay with the federation's process."""

    def __init__(self, app: ASGIApp, tls: TlsPair | None = None) -> None:
        cert, key = tls or (None, None)
        super().__init__(
            uvicorn.Config(
                app,
                http=cast(Any, partial(_PunctualProtocol, waiting={})),
                ws="none",
                loop="asyncio",
                lifespan="on",
                log_config=None,
                log_level="error",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=GRACE_S,
                ssl_certfile=cert,
                ssl_keyfile=key,
            )
        )
        self.is_up = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()


def metrics_route(collector: Collector) -> Route:
    """A route that answers with the metrics of the collector and of this process."""
    registry = run_registry(collector)

    async def answer(request: Request) -> Response:
        kind, text = await run_in_threadpool(exposition, registry, request.headers.get("accept", ""))
        return Response(text, headers={"Content-Type": kind})

    return Route("/metrics", answer)
