"""Who am I, logging in with a password or at the OpenID provider, logging out."""

import html
import json
import logging
import math
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from edge_server.fleet.page.guard import Reception
from edge_server.fleet.page.lists import FolderLists
from edge_server.fleet.page.page_actions import PageActions
from edge_server.fleet.people.login import LoginRefused, log_in, log_in_known
from edge_server.fleet.people.openid import LONGEST_S, OpenIdProvider, PendingLogins
from edge_server.fleet.people.passwords import change_token_of, digest_of
from edge_server.fleet.people.values import MIN_ROLES, Actor
from edge_server.observability.dashboard.access import Access, error_of, json_answer
from schemas.base import fields_of
from schemas.errors import EdgeError

log = logging.getLogger(__name__)

BROWSER_COOKIE = "edge-login"
DONE = "/login/done"
MAX_AT_ONCE = 8  # Logins that are examined or wait for it; each takes a thread for a while


@dataclass(frozen=True)
class PageParts:
    """What the application is made of; `setup` is the command that makes the first admin."""

    reception: Reception
    actions: PageActions
    lists: FolderLists
    access: Access
    provider: OpenIdProvider | None
    setup: str
    clock: Callable[[], float] = time.time


class LoginRoutes:
    def __init__(self, parts: PageParts) -> None:
        self._reception, self._actions, self._provider = parts.reception, parts.actions, parts.provider
        self._setup, self._clock = parts.setup, parts.clock
        self._examined = 0
        self._pending = PendingLogins(lambda: secrets.token_urlsafe(48))

    def me(self, request: Request) -> Response:
        visitor = self._reception.visitor(request, self._clock())
        value: dict[str, Any] = {"who": None, "openid": self._provider is not None, "now": self._clock()}
        if visitor is None:
            has_users = bool(self._reception.people.users()) or self._provider is not None
            return json_answer({**value, "setup": None if has_users else self._setup})
        actor = visitor.actor
        return json_answer(
            {
                **value,
                **fields_of(actor, "who", "role", "where"),
                "reads": [name for name in MIN_ROLES if name.endswith(".read") and may_read(actor, name)],
                "actions": self._actions.forms(actor),
                "change": change_token_of(visitor.session_id) if visitor.session_id else None,
            }
        )

    async def log_in(self, request: Request) -> Response:
        given = await json_object(request)
        if given is None or not all(isinstance(given.get(key), str) for key in ("user", "password")):
            return error_of(400, 'a login is {"user": "...", "password": "..."}')
        if self._examined >= MAX_AT_ONCE:
            return error_of(503, "too many logins at the same time: try again", retry_after="1")
        self._examined += 1
        try:
            entered = await run_in_threadpool(self._examine, given, self._reception.address(request))
        finally:
            self._examined -= 1
        if isinstance(entered, LoginRefused):
            log.warning(
                "login of %r from %s: %s", given["user"][:64], self._reception.address(request), entered.why
            )
            return _make_refusal(entered)
        response = json_answer({"done": True})
        self._reception.set_cookie(response, entered)
        return response

    def _examine(self, given: dict[str, Any], address: str) -> str | LoginRefused:
        return log_in(
            self._reception.people,
            given["user"][:256],
            given["password"],
            address=address,
            lengths=self._reception.lengths,
            now=self._clock(),
        )

    def log_out(self, request: Request) -> Response:
        session_id = request.cookies.get(self._reception.cookie, "")
        self._reception.people.end_session(digest_of(session_id))
        response = json_answer({"done": True})
        self._reception.clear_cookie(response)
        return response

    def to_provider(self, request: Request) -> Response:
        if self._provider is None:
            return error_of(404, "there is no [page.oidc] in service.toml")
        state, browser, pending = self._pending.begin(self._clock())
        try:
            response = RedirectResponse(self._provider.login_url(state, pending), 303)
        except EdgeError as error:
            return _not_logged_in(error, status=503)
        # Strict cookies are not sent with the redirect from the provider.
        response.set_cookie(
            BROWSER_COOKIE,
            browser,
            max_age=int(LONGEST_S),
            httponly=True,
            samesite="lax",
            secure=self._reception.settings.is_protected,
            path=DONE,
        )
        return response

    def from_provider(self, request: Request) -> Response:
        try:
            entered = self._finish_login(request)
        except EdgeError as error:
            return _not_logged_in(error, status=403)
        # A page that leads on: with a redirect the browser would not send the new Strict cookie.
        response = _page("Logged in", "", lead=True)
        self._reception.set_cookie(response, entered)
        response.delete_cookie(BROWSER_COOKIE, path=DONE)
        return response

    def _finish_login(self, request: Request) -> str:
        asked, now = request.query_params, self._clock()
        browser = request.cookies.get(BROWSER_COOKIE, "")
        pending = self._pending.finish(asked.get("state", ""), browser, now)
        if self._provider is None or pending is None:
            raise EdgeError("this login is too old, or was begun in another browser: begin again")
        if not self._provider.is_issuer(asked.get("iss")):
            raise EdgeError("the answer comes from another OpenID provider")
        if "code" not in asked:
            raise EdgeError(f"the OpenID provider refused the login: {asked.get('error', 'no code')[:200]}")
        identity = self._provider.identity(asked["code"], pending, now=now)
        entered = log_in_known(self._reception.people, identity, lengths=self._reception.lengths, now=now)
        if isinstance(entered, LoginRefused):
            raise EdgeError(entered.why)
        return entered


def may_read(actor: Actor, name: str) -> bool:
    """Whether somebody may read a list; a token with a selector reads devices alone."""
    return actor.may(name) and (not actor.where or name == "devices.read")


async def json_object(request: Request) -> dict[str, Any] | None:
    """The request's JSON object; None for anything else."""
    try:
        value = await request.json()
        # Half of a surrogate pair is not text: neither a hash nor a file takes it.
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _make_refusal(refused: LoginRefused) -> Response:
    if refused.wait_s <= 0:
        return error_of(401, refused.why)
    seconds = math.ceil(refused.wait_s)
    return error_of(429, f"{refused.why}: try again in {seconds} s", retry_after=str(seconds))


def _not_logged_in(error: EdgeError, *, status: int) -> Response:
    log.warning("login at the OpenID provider: %s", error)
    return _page("You are not logged in", str(error), status=status)


def _page(title: str, text: str, *, status: int = 200, lead: bool = False) -> Response:
    """A page without scripts; `lead` leads to the service's page at once."""
    refresh = '<meta http-equiv="refresh" content="0; url=/">' if lead else ""
    return HTMLResponse(
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<link rel="icon" href="/assets/icon.svg" type="image/svg+xml">'
        '<link rel="stylesheet" href="/assets/theme.css"><link rel="stylesheet" href="/assets/layout.css">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">{refresh}'
        f"<title>{html.escape(title)}</title></head><body><main><h1>{html.escape(title)}</h1>"
        f'<p>{html.escape(text)}</p><p><a href="/">To the page</a></p></main></body></html>\n',
        status,
    )
