"""The routes of page and API; every route but those of a login asks for a role."""

import logging
from collections.abc import Callable
from pathlib import Path

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from edge_server.fleet.page import device_rows, guard
from edge_server.fleet.page.login_routes import DONE, LoginRoutes, PageParts, json_object
from edge_server.fleet.people.values import NotAllowed, check_role
from edge_server.observability.dashboard.access import error_of, json_answer, on_http_error
from edge_server.observability.dashboard.app import ASSETS as SHARED_ASSETS
from schemas.errors import ConfigError, EdgeError, PeerError

log = logging.getLogger(__name__)

ASSETS = Path(__file__).with_name("assets")
NOT_KNOWN = "log in first, or send a token: Authorization: Bearer TOKEN"
Answer = Callable[[Request, guard.Visitor], device_rows.Json | None]


def make_app(parts: PageParts) -> ASGIApp:
    login = LoginRoutes(parts)
    api = Api(parts)
    app = Starlette(
        routes=[
            Route("/", _page),
            Mount("/assets/page", StaticFiles(directory=ASSETS)),
            Mount("/assets", StaticFiles(directory=SHARED_ASSETS)),
            Route("/login/openid", login.to_provider),
            Route(DONE, login.from_provider),
            Route("/api/me", login.me),
            Route("/api/login", login.log_in, methods=["POST"]),
            Route("/api/logout", api.change(login.log_out), methods=["POST"]),
            Route("/api/devices", api.read("devices.read", api.devices)),
            Route("/api/device/{federation}/{device}", api.read("devices.read", api.device)),
            Route("/api/job/{job}", api.read("jobs.read", api.job)),
            Route("/api/audit", api.read("audit.read", api.audit)),
            Route("/api/users", api.read("users.read", api.users)),
            *(Route(f"/api/{name}", api.read(f"{name}.read", api.other)) for name in parts.lists.others()),
            Route("/api/actions/{name}", api.act, methods=["POST"]),
        ],
        exception_handlers={HTTPException: on_http_error, EdgeError: _edge_error, Exception: _fault},
    )
    settings = parts.reception.settings
    return guard.PageGuard(app, parts.access, parts.reception.cookie, settings.url, settings.is_protected)


class Api:
    def __init__(self, parts: PageParts) -> None:
        self._reception, self._actions, self._lists = parts.reception, parts.actions, parts.lists
        self._clock = parts.clock

    def read(self, action: str, answer: Answer) -> Callable[[Request], Response]:
        """A route that answers those who may do `action`; Starlette calls it in a thread."""

        def handler(request: Request) -> Response:
            visitor = self._reception.visitor(request, self._clock())
            if visitor is None:
                return error_of(401, NOT_KNOWN, www_authenticate="Bearer")
            check_role(visitor.actor.role, action)
            if visitor.actor.where and action != "devices.read":
                raise NotAllowed(f"this token is for the devices where {visitor.actor.where} alone")
            value = answer(request, visitor)
            return error_of(404, "there is nothing of that name") if value is None else json_answer(value)

        return handler

    def change(self, answer: Callable[[Request], Response]) -> Callable[[Request], Response]:
        """A route that changes something for its own session."""

        def handler(request: Request) -> Response:
            visitor = self._changing(request)
            return visitor if isinstance(visitor, Response) else answer(request)

        return handler

    async def act(self, request: Request) -> Response:
        given = await json_object(request)
        if given is None:
            return error_of(400, "the arguments of an action are a JSON object of texts")
        return await run_in_threadpool(self._act, request, given)

    def _act(self, request: Request, given: device_rows.Json) -> Response:
        visitor = self._changing(request)
        if isinstance(visitor, Response):
            return visitor
        name = request.path_params["name"]
        return json_answer(self._actions.perform(name, given, visitor.actor, self._clock()))

    def _changing(self, request: Request) -> guard.Visitor | Response:
        """Who changes something, or why the request is refused."""
        visitor = self._reception.visitor(request, self._clock())
        if visitor is None:
            return error_of(401, NOT_KNOWN, www_authenticate="Bearer")
        if not self._reception.may_change(request, visitor):
            return error_of(403, "the change has not the change token of its session: load the page again")
        return visitor

    def devices(self, request: Request, visitor: guard.Visitor) -> device_rows.Json:
        return self._lists.devices(dict(request.query_params), visitor.actor, self._clock())

    def device(self, request: Request, visitor: guard.Visitor) -> device_rows.Json | None:
        federation, device = request.path_params["federation"], request.path_params["device"]
        return self._lists.device(federation, device, visitor.actor, self._clock())

    def job(self, request: Request, visitor: guard.Visitor) -> device_rows.Json | None:
        return self._lists.job(request.path_params["job"], visitor.actor, self._clock())

    def audit(self, request: Request, visitor: guard.Visitor) -> device_rows.Json:
        return self._lists.audit(dict(request.query_params))

    def users(self, request: Request, visitor: guard.Visitor) -> device_rows.Json:
        return self._lists.users(self._clock())

    def other(self, request: Request, visitor: guard.Visitor) -> device_rows.Json:
        return self._lists.other(request.url.path.rpartition("/")[2], self._clock())


def _page(request: Request) -> Response:
    return FileResponse(ASSETS / "index.html", headers={"Cache-Control": "no-cache"})


async def _fault(request: Request, error: Exception) -> Response:
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return error_of(500, "the service has failed at this: its log says why")


async def _edge_error(request: Request, error: Exception) -> Response:
    """403 for what the role does not allow, 400 for wrong arguments, 503 for what fails here."""
    if isinstance(error, NotAllowed):
        return error_of(403, str(error))
    return error_of(400 if isinstance(error, ConfigError | PeerError) else 503, error)
