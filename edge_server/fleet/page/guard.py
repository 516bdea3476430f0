"""ASGI middleware before every route: `Host`, methods, size and origin of changes, security headers."""

from dataclasses import dataclass

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edge_server.fleet.people.origin import foreign_because
from edge_server.observability.dashboard.access import HEADERS, Access

READS = ("GET", "HEAD")
MOST_BYTES = 65_536
"""Largest body of a change."""
KEPT = 31_536_000
"""Seconds for which browsers use HTTPS only, once they have seen it."""


@dataclass(frozen=True)
class PageGuard:
    """Refuses what no route needs to see; `url` is the address behind a proxy, `cookie` the session's."""

    app: ASGIApp
    access: Access
    cookie: str
    url: str | None = None
    https: bool = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request or pass it to the application."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._add_headers(MutableHeaders(scope=message), scope["path"])
            await send(message)

        answer = self._refused(Request(scope)) or self.app
        await answer(scope, receive, guarded)

    def _refused(self, request: Request) -> Response | None:
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
        if len(length) > 9 or int(length) > MOST_BYTES:
            return error_of(413, f"a change has at most {MOST_BYTES} bytes")
        return None

    def _add_headers(self, headers: MutableHeaders, path: str) -> None:
        for name, value in HEADERS.items():
            headers[name] = value
        if self.https:
            headers["Strict-Transport-Security"] = f"max-age={KEPT}"
        headers.setdefault("Cache-Control", "no-cache" if path.startswith("/assets/") else "no-store")


def error_of(status: int, text: str, **headers: str) -> Response:
    """An error in one line, as JSON."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return JSONResponse({"error": text}, status, named)
