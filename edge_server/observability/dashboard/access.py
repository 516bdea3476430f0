"""Access control of the dashboard (`Host` header, token, methods, security headers), and answers as JSON.

A foreign page whose domain name is made to resolve to this machine (DNS rebinding) sends that name as `Host`
and is refused.
"""

import hashlib
import hmac
import ipaddress
import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from schemas.errors import ConfigError

# JSON answers and errors of the pages' routes.


def json_text(value: Any) -> str:
    """Compact JSON without characters that a browser could read as markup."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def json_answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(json_text(value), status, headers, "application/json")


def error_of(status: int, error: Exception | str, **headers: str) -> Response:
    """An error as JSON: its text, and of settings the fields of each problem.

    `retry_after` stands for the header `Retry-After`.
    """
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    problems = {"problems": error.fields()} if isinstance(error, ConfigError) else {}
    return json_answer({"error": str(error), **problems}, status, named)


async def on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return error_of(
        error.status_code, "there is nothing at this address" if error.status_code == 404 else error.detail
    )


METHODS = ("GET", "HEAD")
LOOPBACK = ("localhost", "127.0.0.1", "::1")
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
NEEDS_TOKEN = (
    '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>Token needed</title></head>'
    "<body><main><h1>This dashboard needs its token</h1><p>Open it as <code>/?token=TOKEN</code>, with the "
    "token that it was started with (<code>--dashboard-token</code>).</p></main></body></html>\n"
)


@dataclass(frozen=True)
class Access:
    """The accepted `Host` names (with `any_address`, every IP address as well), and the token.

    `cookie` is the cookie's name: several dashboards on one machine share their cookies.
    """

    hosts: frozenset[str]
    token: str | None = None
    any_address: bool = False
    cookie: str = "edge-dashboard"

    def answers(self, host: str) -> bool:
        name = host_name(host)
        return name in self.hosts or (self.any_address and is_address(name))

    def knows(self, headers: Headers, cookies: dict[str, str]) -> bool:
        """Whether a request carries the token, or the cookie that was set for it."""
        if self.token is None:
            return True
        kind, _, shown = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and equal_in_constant_time(shown.strip(), self.token):
            return True
        return equal_in_constant_time(cookies.get(self.cookie, ""), self.pass_)

    @property
    def pass_(self) -> str:
        """The cookie's value: it can only be computed from the token and does not reveal it."""
        return hmac.new((self.token or "").encode(), b"edge-dashboard cookie", hashlib.sha256).hexdigest()


@dataclass(frozen=True)
class Guard:
    """ASGI middleware that refuses what no route needs to see, and adds security headers to every answer."""

    app: ASGIApp
    access: Access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self.headers().items():
                    headers[name] = value
                # Browsers revalidate the page's assets and store nothing else.
                is_asset = scope["path"].startswith("/assets/")
                headers.setdefault("Cache-Control", "no-cache" if is_asset else "no-store")
            await send(message)

        answer = self.refusal(Request(scope)) or self.app
        await answer(scope, receive, send_guarded)

    def headers(self) -> Mapping[str, str]:
        return HEADERS

    def refusal(self, request: Request) -> Response | None:
        raise NotImplementedError


class AccessGuard(Guard):
    """Refuses requests without access."""

    def refusal(self, request: Request) -> Response | None:
        access = self.access
        if request.method not in METHODS:
            return error_of(405, "only GET and HEAD are answered", allow=", ".join(METHODS))
        if not access.answers(request.headers.get("host", "")):
            return error_of(
                403, "this dashboard does not answer to that host name: use the address that it printed"
            )
        shown = request.query_params.get("token") if request.scope["path"] == "/" else None
        if access.token is not None and shown is not None and equal_in_constant_time(shown, access.token):
            passed = RedirectResponse("/", 303)
            passed.set_cookie(access.cookie, access.pass_, httponly=True, samesite="strict", path="/")
            return passed
        if access.knows(request.headers, request.cookies):
            return None
        if request.scope["path"] == "/":
            return Response(NEEDS_TOKEN, 401, {"WWW-Authenticate": "Bearer"}, "text/html; charset=utf-8")
        return error_of(401, "this dashboard needs its token", www_authenticate="Bearer")


def access_of(host: str, port: int, token: str | None, *, bound: str, also: str | None = None) -> Access:
    """The access rules of a page that was asked for at `host` and is bound to the address `bound`.

    `also` is its address behind a proxy.
    """
    names = {host.lower(), bound, *LOOPBACK}
    if also is not None:
        names.add((urlsplit(also).hostname or "").lower())
    everywhere = ipaddress.ip_address(bound).is_unspecified
    if everywhere:
        names |= {
            socket.gethostname().lower(),
            f"{socket.gethostname().lower()}.local",
            socket.getfqdn().lower(),
        }
    return Access(frozenset(names), token, any_address=everywhere, cookie=f"edge-dashboard-{port}")


def equal_in_constant_time(shown: str, right: str) -> bool:
    """Whether two texts are equal; the time taken does not depend on where they differ."""
    return hmac.compare_digest(shown.encode(), right.encode())


def host_name(host: str) -> str:
    """A `Host` header without its port: `[::1]:8265` gives `::1`."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
