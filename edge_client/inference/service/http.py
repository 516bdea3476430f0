"""The HTTP channel: `POST /predict`, `GET /healthz`, `GET /metrics`, with the standard library alone.

`GET /` shows the last example with its answer, if the predictor keeps it.

It is meant for loopback or behind a proxy, because it has no authentication.
"""

import base64
import contextlib
import html
import json
import logging
import socket
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingTCPServer
from string import Template
from typing import Any
from urllib.parse import parse_qs, urlsplit

from edge_client.inference.queries import answer_in_words, draw_boxes
from edge_client.inference.service.metrics import CONTENT_TYPE
from edge_client.inference.service.predictor import Answered, Predictor, answer_or_refuse
from edge_client.system.bounded_listener import BoundedListener
from schemas.errors import ConfigError, nearest

log = logging.getLogger(__name__)

MAX_BODY = 8 * 1024 * 1024
MAX_CONNECTIONS, PER_ADDRESS = 64, 32
IDLE_S, REQUEST_S = 30.0, 60.0  # after which an idle connection, and an incomplete request, is closed
JSON = "application/json"
THERE_IS = "there is POST /predict, GET /healthz and GET /metrics"
PAGE_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; frame-ancestors 'none'"
_STATUS = {
    "ok": HTTPStatus.OK,
    "bad": HTTPStatus.BAD_REQUEST,
    "busy": HTTPStatus.SERVICE_UNAVAILABLE,
    "unready": HTTPStatus.SERVICE_UNAVAILABLE,
    "failed": HTTPStatus.INTERNAL_SERVER_ERROR,
}


class PredictionServer(ThreadingTCPServer):
    """The server, with a thread per connection; `close` waits for running requests."""

    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], predictor: Predictor, *, max_body: int = MAX_BODY) -> None:
        self.predictor, self.max_body = predictor, max_body
        self.closing = False
        self._open: set[Any] = set()
        self._lock = threading.Lock()
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, Handler)
        self.socket = BoundedListener(self.socket, most=MAX_CONNECTIONS, per_address=PER_ADDRESS)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def close(self) -> None:
        """Accept no more requests, and return when the running ones are answered."""
        self.closing = True
        self.shutdown()
        with self._lock:
            connections = tuple(self._open)
        for connection in connections:
            # An idle connection ends; an answer can still be written.
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RD)
        self.server_close()

    def get_request(self) -> tuple[Any, Any]:
        try:
            return super().get_request()
        except ConnectionAbortedError:
            self.predictor.metrics.request("http", "busy")
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a connection ended", exc_info=True)


class Handler(BaseHTTPRequestHandler):
    """One connection's requests."""

    protocol_version = "HTTP/1.1"
    default_request_version = "HTTP/1.1"  # of a line that is no request, whose refusal has a head, too
    timeout = IDLE_S
    # Head and body in one packet: a second packet would wait 40 ms for the first one's acknowledgement.
    wbufsize = -1
    disable_nagle_algorithm = True
    server: PredictionServer

    def handle_one_request(self) -> None:
        self.connection.read_by = time.monotonic() + REQUEST_S
        super().handle_one_request()

    def do_GET(self) -> None:
        predictor = self.server.predictor
        match urlsplit(self.path).path:
            case "/healthz":
                model = predictor.model
                document = {"ready": model is not None, "model": model, "trouble": predictor.trouble or None}
                self._send_json(HTTPStatus.SERVICE_UNAVAILABLE if model is None else HTTPStatus.OK, document)
            case "/metrics":
                page = predictor.metrics.text(predictor.model, predictor.provider)
                self._send(HTTPStatus.OK, page.encode(), CONTENT_TYPE)
            case "/" if predictor.keeps_last:
                page = page_of(predictor.last)
                about = {"Content-Security-Policy": PAGE_POLICY, "Cache-Control": "no-store"}
                self._send(HTTPStatus.OK, page.encode(), "text/html; charset=utf-8", **about)
            case "/predict":
                self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "send the image with POST", Allow="POST")
            case _:
                self._refuse(HTTPStatus.NOT_FOUND, self._there_is)

    def do_POST(self) -> None:
        if urlsplit(self.path).path != "/predict":
            self._refuse(HTTPStatus.NOT_FOUND, self._there_is)
            return
        if (body := self._body()) is None:
            return
        predictor = self.server.predictor
        outcome, document = answer_or_refuse(body, lambda: predictor.answer(body, top=self._top()))
        predictor.metrics.request("http", outcome)
        status = _STATUS[outcome]
        retry = {"Retry-After": "1"} if status is HTTPStatus.SERVICE_UNAVAILABLE else {}
        self._send_json(status, document, **retry)

    def _top(self) -> int:
        options = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        if unknown := sorted(options.keys() - {"top"}):
            raise ConfigError(f"no option '{unknown[0][:40]}'{nearest(unknown[0][:40], ['top'])}")
        top = options.get("top", ["1"])[-1]
        if not (top.isascii() and top.isdigit() and 1 <= len(top) <= 6 and int(top)):
            raise ConfigError(f"top={top[:20]!r}", remedy="expected a whole number from 1")
        return int(top)

    def _body(self) -> bytes | None:
        """The request's body; None if it cannot be read, after the refusal was sent."""
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
        """Refuse a request without reading its body, and close the connection."""
        self.close_connection = True
        self.server.predictor.metrics.request("http", "bad")
        self._send_json(status, {"error": why}, **headers)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse what the base class does not pass on: another method, or no request at all."""
        status = HTTPStatus(code)
        is_method = status is HTTPStatus.NOT_IMPLEMENTED
        self._refuse(status, self._there_is if is_method else message or status.phrase)

    @property
    def _there_is(self) -> str:
        return THERE_IS + (", and GET / for a browser" if self.server.predictor.keeps_last else "")

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
        return "edge-client"

    def log_message(self, format: str, *args: Any) -> None:
        """Log no requests: `/metrics` counts them."""


def page_of(last: Answered | None) -> str:
    """The page of the last example: its picture with boxes, if it is one, and the answer."""
    template = Template(Path(__file__).with_name("page.html").read_text("utf-8"))
    if last is None:
        return template.substitute(title="Nothing answered yet", picture="", lines="")
    loaded, picture = last.model.loaded, ""
    if len(loaded.input_shape) == 3:
        boxes = loaded.boxes(last.answer, last.frame) if loaded.task.labels == "boxes" else ()
        drawn = draw_boxes(last.example, loaded.preprocessing.scale, boxes, last.frame)
        picture = f'<img alt="" src="data:image/png;base64,{base64.b64encode(drawn).decode()}">'
    lines = "".join(f"<li>{html.escape(line)}</li>" for line in answer_in_words(last.result))
    title = html.escape(f"{last.model.version} ({last.model.variant})")
    return template.substitute(title=title, picture=picture, lines=lines)
