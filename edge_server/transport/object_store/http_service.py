"""Our own object store: a folder over HTTP(S), for requests with signed URLs."""

import contextlib
import ipaddress
import logging
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from edge_server.transport.http_server import BoundedHttpServer
from edge_server.transport.object_store.signed_urls import permitted_bytes
from edge_server.transport.object_store.store import OBJECT, ObjectFiles, object_at
from schemas.errors import ConfigError
from schemas.messages.blobs import DIGEST_HEADER
from schemas.tensors.chunks import MAX_BLOB_BYTES

log = logging.getLogger(__name__)

CONNECTIONS = 256
KEEP_HOURS = 48.0
POLL_S = 0.1  # Maximum seconds that ending the server takes


class ObjectStoreServer(BoundedHttpServer):
    """An HTTP server that does the TLS handshake in the connection's thread."""

    request_queue_size = 128

    def __init__(
        self, address: tuple[str, int], files: ObjectFiles, key: bytes, context: ssl.SSLContext | None
    ) -> None:
        self._context = context
        super().__init__(address, partial(ObjectStoreHandler, files, key), most=CONNECTIONS)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Do the TLS handshake first, if there is a certificate."""
        if self._context is None:
            super().finish_request(request, client_address)
            return
        request.settimeout(SILENCE_S)
        with self._context.wrap_socket(request, server_side=True) as secured:
            super().finish_request(secured, client_address)


@contextlib.contextmanager
def serve_objects(
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
        service = ObjectStoreServer((host, port), ObjectFiles(folder, keep_s=keep_hours * 3600), key, context)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"cannot serve {folder} on {host} port {port}: {reason}",
            remedy="name another --port, or another folder",
        ) from error
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
    """Without TLS only loopback addresses are allowed; raises `ConfigError`."""
    try:
        found = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host} port {port}: {error}") from error
    if not secure and not ipaddress.ip_address(str(found[0][4][0])).is_loopback:
        raise ConfigError(
            f"{host} can be reached from other machines, and without TLS anyone who reads a signed URL in "
            "transit may use it",
            remedy="name --cert and --key (`edge-server enroll` makes a pair), or listen on 127.0.0.1",
        )


# The HTTP requests that our own object store answers, given a signed URL.
#
# GET with ranges, and resumable PUT of an object with the digest in its header: `Content-Range: bytes */SIZE`
# asks how much has arrived (308 and `Range`, or 201 when complete), `bytes FIRST-LAST/SIZE` sends more.

SILENCE_S = 60.0
BLOCK_BYTES = 256 * 1024


class RequestRefused(Exception):
    """A request is refused with this HTTP status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class ObjectStoreHandler(BaseHTTPRequestHandler):
    """One connection; requests without a signed URL all get the same answer."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "edge-server-blobs", ""
    timeout = SILENCE_S

    def __init__(self, files: ObjectFiles, key: bytes, *connection: Any) -> None:
        self._files, self._key = files, key
        # This serves the connection.
        super().__init__(*connection)

    def do_GET(self) -> None:
        self._answer(self.answer_get)

    def do_HEAD(self) -> None:
        self._answer(self._head)

    def do_PUT(self) -> None:
        self._answer(self._put)

    def do_DELETE(self) -> None:
        self._answer(self._delete)

    def _answer(self, action: Any) -> None:
        path, query = urlsplit(self.path).path, urlsplit(self.path).query
        most = permitted_bytes(self._key, self.command, path, query, time.time())
        try:
            if most is None:
                raise RequestRefused(403)
            if self.command != "PUT" and not OBJECT.fullmatch(path[1:]):
                raise RequestRefused(404)
            action(path[1:], most)
        except RequestRefused as refused:
            # The unread rest of the body must not be taken for the next request.
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

    def answer_get(self, name: str, _: int) -> None:
        with self._files.object_path(name).open("rb") as file:
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
            # Over TLS, sendfile starts at the file's position.
            file.seek(first)
            self.connection.sendfile(file, first, last - first + 1)

    def _head(self, name: str, _: int) -> None:
        self._say(200, {"Content-Length": str(self._files.object_path(name).stat().st_size)})

    def _delete(self, name: str, _: int) -> None:
        self._files.remove(name)
        self._say(204)

    def _put(self, place: str, most: int) -> None:
        digest = self.headers.get(DIGEST_HEADER, "")
        name = object_at(place, digest)
        if name is None:
            raise RequestRefused(404)
        length = _number(self.headers.get("Content-Length", ""))
        start, size = self._range_sent(length)
        if size > most or size == 0:
            raise RequestRefused(413)
        with self._files.writing(place) as free:
            if not free:
                raise RequestRefused(409)
            held = self._take(place, digest, start, length)
            done = self._place_object(place, name, digest, held >= size)
        # After the lock is released: the client sends the next range upon this answer.
        self._say(201 if done else 308, {"Range": f"bytes=0-{held - 1}"} if held and not done else {})
        self._files.sweep()

    def _take(self, place: str, digest: str, start: int | None, length: int) -> int:
        """Write the body, if there is one; returns the number of bytes received so far."""
        files = self._files
        part, held = files.begin(place, digest), files.held_bytes(place, digest)
        if start is None:
            return held
        if start not in (0, held):
            raise RequestRefused(416)
        with part.open("r+b" if start else "wb") as file:
            file.seek(start)
            self._receive(file, length)
        return files.held_bytes(place, digest)

    def _place_object(self, place: str, name: str, digest: str, whole: bool) -> bool:
        """Whether the object exists, now or from an earlier upload."""
        files = self._files
        if whole and not files.place(place, digest):
            raise RequestRefused(422)
        return whole or files.object_path(name).is_file()

    def _range_sent(self, length: int) -> tuple[int | None, int]:
        """The offset of the body (None if there is no body), and the size of the whole object."""
        stated = self.headers.get("Content-Range")
        if stated is None:
            return 0, length
        if asked := re.fullmatch(r"bytes \*/([0-9]{1,15})", stated):
            return None, int(asked[1])
        part = re.fullmatch(r"bytes ([0-9]{1,15})-([0-9]{1,15})/([0-9]{1,15})", stated)
        first, last, size = (int(part[n]) for n in (1, 2, 3)) if part else (0, 0, 0)
        if part is None or last >= size or last - first + 1 != length:
            raise RequestRefused(400)
        return first, size

    def _receive(self, file: BinaryIO, length: int) -> None:
        while length:
            block = self.rfile.read(min(BLOCK_BYTES, length))
            if not block:
                raise ConnectionResetError("the body ended early")
            file.write(block)
            length -= len(block)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log a request without its query, which contains the signature."""
        log.debug("%s %s: %s", self.command, urlsplit(self.path).path, code)

    def log_message(self, format: str, *args: Any) -> None:
        """Log a malformed request without its text."""
        log.debug("a malformed request from %s", self.client_address[0])


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
        raise RequestRefused(416)
    return first, last


def _number(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,15}", text):
        raise RequestRefused(411)
    if int(text) > MAX_BLOB_BYTES:
        raise RequestRefused(413)
    return int(text)
