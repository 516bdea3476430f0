"""The HTTP channel: `POST /predict`, `GET /healthz`, `GET /metrics`, with the standard library alone.

Meant for this machine (loopback) or for behind a proxy: it asks nobody who they are.
"""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from edge_client.inference.service.metrics import CONTENT_TYPE
from edge_client.inference.service.predictor import Busy, NotReady, Predictor, refusal
from schemas.errors import ConfigError

log = logging.getLogger(__name__)

MAX_BODY = 8 * 1024 * 1024
MAX_CONNECTIONS = 64
IDLE_S = 30.0
"""A connection on which nothing comes for so long is closed."""
JSON = "application/json"


class Web(ThreadingTCPServer):
    """The server; each connection has a thread, and `close` lets requests that have begun end."""

    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], predictor: Predictor, *, max_body: int = MAX_BODY) -> None:
        self.predictor, self.max_body = predictor, max_body
        self.closing = False
        self._open: set[Any] = set()
        self._lock = threading.Lock()
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, Handler)

    @property
    def port(self) -> int:
        """The port that it listens at."""
        return int(self.server_address[1])

    def close(self) -> None:
        """Take no more requests, and return when those that have begun are answered."""
        self.closing = True
        self.shutdown()
        with self._lock:
            connections = tuple(self._open)
        for connection in connections:
            # Whoever waits for a next request reads an end; an answer can still be written.
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RD)
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give the connection a thread, unless there are too many."""
        with self._lock:
            room = len(self._open) < MAX_CONNECTIONS
            if room:
                self._open.add(request)
        if room:
            super().process_request(request, client_address)
        else:
            self.predictor.tally.request("http", "busy")
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        """End a connection."""
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke."""
        log.debug("a connection ended", exc_info=True)


class Handler(BaseHTTPRequestHandler):
    """One connection's requests."""

    protocol_version = "HTTP/1.1"
    timeout = IDLE_S
    # Head and body in one packet: in two, the second waits 40 ms for the first one's acknowledgement.
    wbufsize = -1
    disable_nagle_algorithm = True
    server: Web

    def do_GET(self) -> None:
        """`/healthz` and `/metrics`."""
        predictor = self.server.predictor
        match urlsplit(self.path).path:
            case "/healthz":
                self._tell_health(predictor)
            case "/metrics":
                self._send(HTTPStatus.OK, predictor.tally.text(predictor.model).encode(), CONTENT_TYPE)
            case "/predict":
                self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "send the image with POST", Allow="POST")
            case _:
                self._refuse(HTTPStatus.NOT_FOUND, "there is POST /predict, GET /healthz and GET /metrics")

    def do_POST(self) -> None:
        """`/predict`."""
        if urlsplit(self.path).path != "/predict":
            self._refuse(HTTPStatus.NOT_FOUND, "there is POST /predict, GET /healthz and GET /metrics")
            return
        body = self._body()
        if body is not None:
            self._predict(body)

    def _tell_health(self, predictor: Predictor) -> None:
        model = predictor.model
        document = {"ready": model is not None, "model": model, "trouble": predictor.trouble or None}
        self._send_json(HTTPStatus.SERVICE_UNAVAILABLE if model is None else HTTPStatus.OK, document)

    def _predict(self, body: bytes) -> None:
        tally = self.server.predictor.tally
        try:
            answer = self.server.predictor.answer(body, top=self._top())
        except ConfigError as error:
            tally.request("http", "bad")
            self._send_json(HTTPStatus.BAD_REQUEST, refusal(body, error))
        except (Busy, NotReady) as error:
            tally.request("http", "busy" if isinstance(error, Busy) else "unready")
            self._send_json(HTTPStatus.SERVICE_UNAVAILABLE, refusal(body, error), **{"Retry-After": "1"})
        except Exception as error:
            # Whatever a stranger's bytes bring about costs this answer, not the service.
            log.exception("a request failed")
            tally.request("http", "failed")
            self._send_json(HTTPStatus.INTERNAL_SERVER_ERROR, refusal(body, error))
        else:
            tally.request("http", "ok")
            self._send_json(HTTPStatus.OK, answer)

    def _top(self) -> int:
        asked = parse_qs(urlsplit(self.path).query).get("top", ["1"])[-1]
        if not (asked.isascii() and asked.isdigit() and 1 <= len(asked) <= 6 and int(asked)):
            raise ConfigError(f"top={asked[:20]!r}: expected a whole number from 1")
        return int(asked)

    def _body(self) -> bytes | None:
        """The request's body; None where it cannot be read, which has been answered then."""
        length, most = self.headers.get("Content-Length", ""), self.server.max_body
        if not (length.isascii() and length.isdigit()) or "Transfer-Encoding" in self.headers:
            self._refuse(HTTPStatus.LENGTH_REQUIRED, "say the body's size in Content-Length")
            return None
        if len(length) > 12 or int(length) > most:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {most} bytes are taken")
            return None
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            self.close_connection = True
            return None
        return body

    def _refuse(self, status: HTTPStatus, why: str, **headers: str) -> None:
        """Answer without reading what may follow, and end the connection."""
        self.close_connection = True
        self.server.predictor.tally.request("http", "bad")
        self._send_json(status, {"error": why}, **headers)

    def _send_json(self, status: HTTPStatus, document: Any, **headers: str) -> None:
        self._send(status, json.dumps(document).encode() + b"\n", JSON, **headers)

    def _send(self, status: HTTPStatus, body: bytes, kind: str, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if self.server.closing:
            self.close_connection = True
        if self.close_connection:
            self.send_header("Connection", "close")
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        """What the header `Server` says: not which Python this is."""
        return "edge-client"

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing per request: `/metrics` counts them."""
