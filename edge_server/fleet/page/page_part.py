"""The page as a part of the service: it begins with the service, and again when the first user is made."""

import contextlib
import logging
import shlex
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from edge_client.transport.broker_link import is_loopback
from edge_server.fleet.actions.action import Desk
from edge_server.fleet.diagnostics.remote_part import Diagnostics, RemotePart
from edge_server.fleet.page import device_rows, guard, login_routes
from edge_server.fleet.page.lists import FolderLists
from edge_server.fleet.page.login_routes import DONE, LoginRoutes, PageParts, json_object
from edge_server.fleet.page.page_actions import PageActions
from edge_server.fleet.part import Part, ServiceContext
from edge_server.fleet.people import openid, store
from edge_server.fleet.people.values import NotAllowed, check_role
from edge_server.fleet.settings.page import PORT, PageSettings
from edge_server.observability.dashboard.access import access_of, error_of, json_answer, on_http_error
from edge_server.observability.dashboard.app import ASSETS as SHARED_ASSETS
from edge_server.observability.dashboard.bind_address import HOST, listening_socket, resolve_host, url_of
from edge_server.observability.dashboard.server_thread import TlsPair, serving
from edge_server.storage.service_folder import ServiceFolder
from schemas.errors import ConfigError, EdgeError, PeerError, nearest

log = logging.getLogger(__name__)

LOOK_EVERY_S = 2.0  # Seconds between two looks for a first user


class PagePart(Part):
    """Serves the page; without any user it listens at this machine alone, until there is one."""

    def __init__(self, context: ServiceContext, remote: RemotePart) -> None:
        self._settings = context.settings.page
        self._people = store.People(context.folder.people)
        diagnostics = Diagnostics(remote.request)
        self._desk = Desk(context.folder, context.settings, self._people, diagnostics)
        self._lists = FolderLists(
            context.folder,
            self._people,
            jobs_at_once=context.settings.jobs.at_once,
            diagnostics=diagnostics.of_device,
        )
        self._setup = first_admin_command(context.folder)
        self._served = contextlib.ExitStack()
        self._host = ""
        self._next_look = float("-inf")
        self.url = ""
        self.listens_at = ("", 0)

    def begin(self) -> None:
        """Serve the page; raises `ConfigError` where it cannot listen."""
        self._host = page_host(self._settings, self._people)
        served = self._served.enter_context(
            serve_page(
                self._settings,
                self._people,
                lists=self._lists,
                actions=PageActions(self._desk),
                setup=self._setup,
            )
        )
        self.url, self.listens_at = served.url, served.address
        log.info("the page is at %s", self.url)
        if not has_users(self._settings, self._people):
            log.warning("nobody can log in yet; the first admin is made by: %s", self._setup)

    def tick(self, now: float) -> None:
        """Listen at the address of the settings as soon as there is a user."""
        if self._host == self._settings.host or now < self._next_look:
            return
        self._next_look = now + LOOK_EVERY_S
        if page_host(self._settings, self._people) != self._host:
            self._served.close()
            self.begin()

    def stop(self) -> None:
        self._served.close()
        self._lists.close()
        self._people.close()


def first_admin_command(folder: ServiceFolder) -> str:
    words = ["edge-server", "users", "add", "NAME", "--role", "admin", "--service", str(folder.path)]
    return shlex.join(words)


@dataclass(frozen=True)
class ServedPage:
    """A page that listens at `address`; `url` is where browsers find it."""

    url: str
    address: tuple[str, int]


@contextmanager
def serve_page(
    settings: PageSettings, people: store.People, *, lists: FolderLists, actions: PageActions, setup: str
) -> Iterator[ServedPage]:
    """Serve the page until the block ends. Raises `ConfigError` for an unusable address or certificate."""
    tls = _checked_tls(settings)
    host = page_host(settings, people)
    family, address = resolve_host(host)
    try:
        bound = listening_socket(family, address, (PORT, 0) if settings.port is None else (settings.port,))
    except OSError as error:
        raise ConfigError(
            f"the page cannot listen at {address}:{settings.port or 0}: {error.strerror or error}",
            remedy="name another [page] port in service.toml",
        ) from error
    port = bound.getsockname()[1]
    url = url_of(host, port).replace("http://", "https://" if tls else "http://")
    access = access_of(host, port, None, bound=address, also=settings.url)
    reception = guard.Reception(people, settings, port)
    app = make_app(login_routes.PageParts(reception, actions, lists, access, _provider(settings), setup))
    with serving(app, bound, url=url, name="page", tls=tls, proxies=settings.proxies):
        yield ServedPage(settings.url or url, (address, port))


def page_host(settings: PageSettings, people: store.People) -> str:
    """Where to listen: without any user, this machine only."""
    return settings.host if has_users(settings, people) or is_loopback(settings.host) else HOST


def has_users(settings: PageSettings, people: store.People) -> bool:
    return settings.oidc is not None or bool(people.users())


def _provider(settings: PageSettings) -> openid.OpenIdProvider | None:
    if settings.oidc is None or settings.url is None:
        return None
    return openid.OpenIdProvider(settings.oidc, settings.url.rstrip("/") + login_routes.DONE)


def _checked_tls(settings: PageSettings) -> TlsPair | None:
    """The files of the certificate, which are one pair; raises `ConfigError`."""
    if settings.cert is None or settings.key is None:
        return None
    cert, key = settings.cert, settings.key
    for name, path in {"cert": cert, "key": key}.items():
        if not path.is_file():
            raise ConfigError(f"there is no file {path}", place="service.toml", key=f"[page] {name}")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"[page] cert {cert} and key {key} are not a pair of PEM files: {error}") from error
    return cert, key


ASSETS = Path(__file__).with_name("assets")
NOT_KNOWN = "log in first, or send a token: Authorization: Bearer TOKEN"
NOT_GOOD = "this token is unknown or has ended: `edge-server tokens list` has those that are good"
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
            Route("/api/devices", api.read("devices.read", api.devices, device_rows.OPTIONS)),
            Route("/api/device/{federation}/{device}", api.read("devices.read", api.device)),
            Route("/api/job/{job}", api.read("jobs.read", api.job)),
            Route("/api/audit", api.read("audit.read", api.audit, ("who", "what"))),
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

    def read(self, action: str, answer: Answer, options: Sequence[str] = ()) -> Callable[[Request], Response]:
        """A route that answers those who may do `action`; Starlette calls it in a thread."""

        def handler(request: Request) -> Response:
            visitor = self._reception.visitor(request, self._clock())
            if visitor is None:
                return _unknown(request)
            check_role(visitor.actor.role, action)
            if visitor.actor.where and action != "devices.read":
                raise NotAllowed(f"this token is for the devices where {visitor.actor.where} alone")
            if unknown := sorted(request.query_params.keys() - set(options)):
                raise ConfigError(
                    f"there is no option '{unknown[0][:40]}'{nearest(unknown[0][:40], options)}"
                )
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
            return _unknown(request)
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


def _unknown(request: Request) -> Response:
    sent = request.headers.get("authorization", "").lower().startswith("bearer ")
    return error_of(401, NOT_GOOD if sent else NOT_KNOWN, www_authenticate="Bearer")


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
