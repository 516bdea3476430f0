"""An HTTP server with a thread per connection and limits on connections."""

import logging
import socket
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from edge_client.system.bounded_listener import BoundedListener

log = logging.getLogger(__name__)


class BoundedHttpServer(ThreadingHTTPServer):
    """Serves at most `most` connections at a time, half of them from one address; others are closed."""

    daemon_threads = True

    def __init__(
        self, address: tuple[str, int], handler: Callable[..., BaseHTTPRequestHandler], *, most: int
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)
        self.socket = BoundedListener(self.socket, most=most, per_address=most // 2)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Broken connections are routine and only logged at debug level."""
        log.debug("a connection of %s ended", client_address[0], exc_info=True)
