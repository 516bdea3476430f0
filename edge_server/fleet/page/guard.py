"""ASGI middleware before every route: `Host`, methods, size and origin of changes, security headers."""

from collections.abc import Mapping
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from edge_client.system.bounded_listener import counted_address
from edge_server.fleet.people import lockout, login, passwords, store, values
from edge_server.fleet.settings.page import PageSettings
from edge_server.observability.dashboard.access import HEADERS, Guard, error_of

CHANGE_HEADER = "x-edge-change"  # Header with the change token of the session


@dataclass(frozen=True)
class Visitor:
    """Somebody who is known; `session_id` is empty for a token."""

    actor: values.Actor
    session_id: str = ""


@dataclass(frozen=True)
class Reception:
    """Recognises visitors, and hands out cookies; `port` tells the cookies of several services apart."""

    people: store.People
    settings: PageSettings
    port: int

    @property
    def lengths(self) -> values.SessionLengths:
        return values.SessionLengths(self.settings.idle_s, self.settings.longest_s)

    @property
    def cookie(self) -> str:
        """The name of the session's cookie; browsers accept `__Host-` from the host itself with TLS only."""
        return "__Host-edge-session" if self.settings.is_protected else f"edge-session-{self.port}"

    def visitor(self, request: Request, now: float) -> Visitor | None:
        """Who sends the request; a token counts before a cookie."""
        kind, _, secret = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            actor = login.actor_of_token(self.people, secret.strip(), now)
            return Visitor(actor) if actor else None
        session_id = request.cookies.get(self.cookie, "")
        if not session_id:
            return None
        actor = login.actor_of_session(self.people, session_id, self.lengths, now)
        return Visitor(actor, session_id) if actor else None

    def may_change(self, request: Request, visitor: Visitor) -> bool:
        """Whether a change carries its session's change token; a token's request has no cookie to abuse."""
        shown = request.headers.get(CHANGE_HEADER, "")
        return not visitor.session_id or passwords.is_change_token(shown, visitor.session_id)

    def address(self, request: Request) -> str:
        """The address that failed logins are counted for; a known proxy names the one before it."""
        host = request.client.host if request.client else ""
        if host in self.settings.proxies:
            host = request.headers.get("x-forwarded-for", "").rpartition(",")[2].strip() or host
        return counted_address(host)

    def set_cookie(self, response: Response, session_id: str) -> None:
        response.set_cookie(
            self.cookie,
            session_id,
            max_age=int(self.settings.longest_s),
            httponly=True,
            samesite="strict",
            secure=self.settings.is_protected,
            path="/",
        )

    def clear_cookie(self, response: Response) -> None:
        secure = self.settings.is_protected
        response.delete_cookie(self.cookie, path="/", httponly=True, samesite="strict", secure=secure)


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
        why = lockout.foreign_because(
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
