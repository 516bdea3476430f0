"""Our own object store: a folder over HTTP(S), for requests with signed URLs."""

import contextlib
import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from edge_server.transport.http_server import BoundedHttpServer
from edge_server.transport.object_store.files import ObjectFiles
from edge_server.transport.object_store.http_handler import SILENCE_S, ObjectStoreHandler
from schemas.errors import ConfigError

CONNECTIONS = 256
KEEP_HOURS = 48.0
POLL_S = 0.1
"""Maximum seconds that ending the server takes."""


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
            f"cannot serve {folder} on {host} port {port}: {reason}; name another --port, or another folder"
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
            "transit may use it: name --cert and --key (`edge-server enroll` makes a pair), or listen on "
            "127.0.0.1"
        )
