"""Our own store of blobs: a folder over HTTP(S), for those who show a signed address.

GET with ranges, and PUT of what the digest in its header says, which goes on where it was cut:
`Content-Range: bytes */SIZE` asks how much is there (308 and `Range`, or 201 when all of it is),
`bytes FIRST-LAST/SIZE` brings more.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from edge_server.depot.links import permitted
from edge_server.depot.shelf import OBJECT, Shelf, object_at
from schemas.blobs import MAX_BLOB_BYTES
from schemas.depot import DIGEST_HEADER
from schemas.errors import ConfigError

log = logging.getLogger(__name__)

SILENCE_S = 60.0
CONNECTIONS = 256
BLOCK_BYTES = 256 * 1024
KEEP_HOURS = 48.0
POLL_S = 0.1
"""How long an end may have to wait."""


class Refused(Exception):
    """The status to answer with."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Handler(BaseHTTPRequestHandler):
    """One connection; whatever has no signed address learns nothing but that."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "edge-server-blobs", ""
    timeout = SILENCE_S
    server: Service

    def do_GET(self) -> None:
        """An object, or a range of it."""
        self._answer(self._get)

    def do_HEAD(self) -> None:
        """Whether there is such an object."""
        self._answer(self._head)

    def do_PUT(self) -> None:
        """An object, or a piece of it."""
        self._answer(self._put)

    def do_DELETE(self) -> None:
        """Forget an object."""
        self._answer(self._delete)

    def _answer(self, action: Any) -> None:
        path, query = urlsplit(self.path).path, urlsplit(self.path).query
        most = permitted(self.server.key, self.command, path, query, time.time())
        try:
            if most is None:
                raise Refused(403)
            if self.command != "PUT" and not OBJECT.fullmatch(path[1:]):
                raise Refused(404)
            action(path[1:], most)
        except Refused as refused:
            # What was not read of a request must not be taken for the next one.
            self.close_connection = True
            self._say(refused.status)
        except FileNotFoundError:
            self.close_connection = True
            self._say(404)
        except OSError as error:
            log.info("%s %s: cut off: %s", self.command, path, error)
            self.close_connection = True

    def _say(self, status: int, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": "0", **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()

    def _get(self, name: str, _: int) -> None:
        with self.server.shelf.path(name).open("rb") as file:
            size = file.seek(0, 2)
            tag = f'"{name.rpartition("/")[2]}"'
            wanted = _range(self.headers.get("Range", ""), size)
            if self.headers.get("If-Range", tag) != tag:
                wanted = None
            first, last = wanted or (0, size - 1)
            headers = {"Content-Length": str(last - first + 1), "ETag": tag, "Accept-Ranges": "bytes"}
            if wanted:
                headers["Content-Range"] = f"bytes {first}-{last}/{size}"
            self._say(206 if wanted else 200, headers)
            # Over TLS it begins where the file stands.
            file.seek(first)
            self.connection.sendfile(file, first, last - first + 1)

    def _head(self, name: str, _: int) -> None:
        self._say(200, {"Content-Length": str(self.server.shelf.path(name).stat().st_size)})

    def _delete(self, name: str, _: int) -> None:
        self.server.shelf.remove(name)
        self._say(204)

    def _put(self, place: str, most: int) -> None:
        shelf, digest = self.server.shelf, self.headers.get(DIGEST_HEADER, "")
        name = object_at(place, digest)
        if name is None:
            raise Refused(404)
        with shelf.writing(place) as free:
            if not free:
                raise Refused(409)
            length = _number(self.headers.get("Content-Length", ""))
            start, size = self._piece(length)
            if size > most or size == 0:
                raise Refused(413)
            part, held = shelf.begin(place, digest), shelf.held(place, digest)
            if start is not None:
                if start not in (0, held):
                    raise Refused(416)
                with part.open("r+b" if start else "wb") as file:
                    file.seek(start)
                    self._receive(file, length)
                held = shelf.held(place, digest)
            if held >= size:
                self._say(201 if shelf.place(place, digest) else 422)
            elif shelf.path(name).is_file():
                self._say(201)
            else:
                self._say(308, {"Range": f"bytes=0-{held - 1}"} if held else {})
        shelf.sweep()

    def _piece(self, length: int) -> tuple[int | None, int]:
        """Where what comes begins, None where nothing does, and the size of the whole."""
        stated = self.headers.get("Content-Range")
        if stated is None:
            return 0, length
        if asked := re.fullmatch(r"bytes \*/([0-9]{1,15})", stated):
            return None, int(asked[1])
        piece = re.fullmatch(r"bytes ([0-9]{1,15})-([0-9]{1,15})/([0-9]{1,15})", stated)
        first, last, size = (int(piece[n]) for n in (1, 2, 3)) if piece else (0, 0, 0)
        if piece is None or last >= size or last - first + 1 != length:
            raise Refused(400)
        return first, size

    def _receive(self, file: BinaryIO, length: int) -> None:
        while length:
            block = self.rfile.read(min(BLOCK_BYTES, length))
            if not block:
                raise ConnectionResetError("the body ended early")
            file.write(block)
            length -= len(block)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Without the query, which is a secret."""
        log.debug("%s %s: %s", self.command, urlsplit(self.path).path, code)

    def log_message(self, format: str, *args: Any) -> None:
        """What the library would say of a request that is none, its text left out."""
        log.debug("a request that is none from %s", self.client_address[0])


class Service(ThreadingHTTPServer):
    """A thread per connection, so many at once; the handshake of TLS is the connection's own, too."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, address: tuple[str, int], shelf: Shelf, key: bytes, context: ssl.SSLContext | None
    ) -> None:
        self.shelf, self.key, self._context = shelf, key, context
        self._room = threading.BoundedSemaphore(CONNECTIONS)
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Turn away whoever is one too many."""
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection, then make room."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Speak TLS first, where there is a certificate."""
        if self._context is None:
            super().finish_request(request, client_address)
            return
        request.settimeout(SILENCE_S)
        with self._context.wrap_socket(request, server_side=True) as secured:
            super().finish_request(secured, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke is no news."""
        log.debug("connection of %s ended", client_address[0], exc_info=True)


@contextlib.contextmanager
def serving(
    folder: Path,
    key: bytes,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    pair: tuple[Path, Path] | None = None,
    keep_hours: float = KEEP_HOURS,
) -> Iterator[str]:
    """Serve a folder while the context lasts; yields its address. Port 0 takes a free one."""
    _check_host(host, port, secure=pair is not None)
    context = None
    if pair is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(*pair)
        except (ssl.SSLError, OSError) as error:
            raise ConfigError(f"--cert {pair[0]} and --key {pair[1]}: {error}") from error
    try:
        service = Service((host, port), Shelf(folder, keep_s=keep_hours * 3600), key, context)
    except (OSError, OverflowError) as error:
        raise ConfigError(f"cannot serve {folder} on {host} port {port}: {error}") from error
    thread = threading.Thread(target=service.serve_forever, args=(POLL_S,), name="blobs", daemon=True)
    thread.start()
    try:
        shown = f"[{host}]" if ":" in host else host
        yield f"{'https' if pair else 'http'}://{shown}:{service.server_address[1]}/"
    finally:
        service.shutdown()
        service.server_close()
        thread.join()


def _check_host(host: str, port: int, *, secure: bool) -> None:
    """Without TLS only this machine may reach it; raises `ConfigError`."""
    try:
        found = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host} port {port}: {error}") from error
    if not secure and not ipaddress.ip_address(str(found[0][4][0])).is_loopback:
        raise ConfigError(
            f"{host} can be reached from other machines, and without TLS whoever reads an address on the way "
            "may use it: name --cert and --key (`edge-server enroll` makes a pair), or listen on 127.0.0.1"
        )


def _range(text: str, size: int) -> tuple[int, int] | None:
    """First and last byte of a single range that can be satisfied; None for all of it."""
    found = re.fullmatch(r"bytes=([0-9]{0,15})-([0-9]{0,15})", text)
    if not found or not (found[1] or found[2]):
        return None
    if found[1]:
        first, last = int(found[1]), min(int(found[2] or size - 1), size - 1)
    else:
        first, last = max(0, size - int(found[2])), size - 1
    if first > last:
        raise Refused(416)
    return first, last


def _number(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,15}", text):
        raise Refused(411)
    if int(text) > MAX_BLOB_BYTES:
        raise Refused(413)
    return int(text)
