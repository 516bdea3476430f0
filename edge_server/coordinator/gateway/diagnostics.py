"""Requests for diagnostics on their way through a gateway, at a limited rate."""

from edge_server.coordinator.publisher import RateLimit
from schemas.errors import PeerError
from schemas.messages import DiagnosticRequest
from schemas.messages.remote import DiagnosticAnswer
from schemas.values import Reason

MOST_REQUESTS, WINDOW_S = 200, 10.0
"""Requests from above that are passed on in this time, repeats included."""
MOST_KNOWN = 1_000


class PassedRequests:
    """Knows the requests from above, so that only answers to them use the far link."""

    def __init__(self) -> None:
        self._limit = RateLimit(MOST_REQUESTS, WINDOW_S)
        self._known: dict[tuple[str, str], None] = {}

    def admit(self, request: DiagnosticRequest, now: float) -> None:
        """Remember a request; raises `PeerError` if there are too many."""
        if not self._limit.allows(now):
            detail = f"more than {MOST_REQUESTS} requests for diagnostics in {WINDOW_S:.0f} s"
            raise PeerError(detail, reason=Reason.TOO_MANY_REQUESTS)
        key = (request.device, request.request)
        self._known.pop(key, None)
        self._known[key] = None
        if len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]

    def is_answer(self, message: DiagnosticAnswer) -> bool:
        """Whether a device answers a request from above."""
        return (message.device, message.request) in self._known
