"""Who sends a request: a session's cookie or a token in, an actor out; the session's cookie."""

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from edge_client.system.bounded_listener import counted_address
from edge_server.fleet.people.login import actor_of_session, actor_of_token
from edge_server.fleet.people.random_secrets import is_change_token
from edge_server.fleet.people.store import People
from edge_server.fleet.people.values import Actor, SessionLengths
from edge_server.fleet.settings.page import PageSettings

CHANGE_HEADER = "x-edge-change"  # Header with the change token of the session


@dataclass(frozen=True)
class Visitor:
    """Somebody who is known; `session_id` is empty for a token."""

    actor: Actor
    session_id: str = ""


@dataclass(frozen=True)
class Reception:
    """Recognises visitors, and hands out cookies; `port` tells the cookies of several services apart."""

    people: People
    settings: PageSettings
    port: int

    @property
    def lengths(self) -> SessionLengths:
        return SessionLengths(self.settings.idle_s, self.settings.longest_s)

    @property
    def cookie(self) -> str:
        """The name of the session's cookie; browsers accept `__Host-` from the host itself with TLS only."""
        return "__Host-edge-session" if self.settings.is_protected else f"edge-session-{self.port}"

    def visitor(self, request: Request, now: float) -> Visitor | None:
        """Who sends the request; a token counts before a cookie."""
        kind, _, secret = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            actor = actor_of_token(self.people, secret.strip(), now)
            return Visitor(actor) if actor else None
        session_id = request.cookies.get(self.cookie, "")
        if not session_id:
            return None
        actor = actor_of_session(self.people, session_id, self.lengths, now)
        return Visitor(actor, session_id) if actor else None

    def may_change(self, request: Request, visitor: Visitor) -> bool:
        """Whether a change carries its session's change token; a token's request has no cookie to abuse."""
        shown = request.headers.get(CHANGE_HEADER, "")
        return not visitor.session_id or is_change_token(shown, visitor.session_id)

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
