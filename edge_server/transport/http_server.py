"""An HTTP server with a thread per connection and a limit on connections."""

import logging
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

log = logging.getLogger(__name__)


class BoundedHttpServer(ThreadingHTTPServer):
    """Serves at most `most` connections at a time; further ones are closed at once."""

    daemon_threads = True

    def __init__(
        self, address: tuple[str, int], handler: Callable[..., BaseHTTPRequestHandler], *, most: int
    ) -> None:
        self._room = threading.BoundedSemaphore(most)
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for the connection, unless there are too many."""
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve the connection, then free its place."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Broken connections are routine and only logged at debug level."""
        log.debug("a connection of %s ended", client_address[0], exc_info=True)
