"""ASGI middleware before every route: `Host`, methods, size and origin of changes, security headers."""

from collections.abc import Mapping
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from edge_server.fleet.people.origin import foreign_because
from edge_server.observability.dashboard.access import HEADERS, Guard
from edge_server.observability.dashboard.answers import error_of

READS = ("GET", "HEAD")
MAX_BYTES = 65_536  # Largest body of a change
KEPT = 31_536_000  # Seconds for which browsers use HTTPS only, once they have seen it


@dataclass(frozen=True)
class PageGuard(Guard):
    """Refuses what no route needs to see; `url` is the address behind a proxy, `cookie` the session's."""

    cookie: str
    url: str | None = None
    https: bool = False

    def headers(self) -> Mapping[str, str]:
        return {**HEADERS, "Strict-Transport-Security": f"max-age={KEPT}"} if self.https else HEADERS

    def refusal(self, request: Request) -> Response | None:
        host = request.headers.get("host", "")
        if not self.access.answers(host):
            return error_of(
                403, "this page does not answer to that host name: use the address that it printed"
            )
        if request.method in READS:
            return None
        if request.method != "POST" or not request.url.path.startswith("/api/"):
            return error_of(405, "GET, HEAD, and POST to /api/... are answered")
        return self._refused_change(request, host)

    def _refused_change(self, request: Request, host: str) -> Response | None:
        headers = request.headers
        why = foreign_because(
            origin=headers.get("origin"),
            host=host,
            fetch_site=headers.get("sec-fetch-site", ""),
            url=self.url,
            cookie=self.cookie in request.cookies,
        )
        if why:
            return error_of(403, f"{why}: changes are made from this page, or with a token")
        if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return error_of(415, "a change is a JSON object with Content-Type: application/json")
        length = headers.get("content-length", "")
        if not (length.isascii() and length.isdigit()):
            return error_of(411, "a change states its Content-Length")
        if len(length) > 9 or int(length) > MAX_BYTES:
            return error_of(413, f"a change has at most {MAX_BYTES} bytes")
        return None
