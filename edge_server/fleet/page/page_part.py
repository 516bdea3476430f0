"""The page as a part of the service: it begins with the service, and again when the first user is made."""

import contextlib
import logging
import shlex
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from edge_client.transport.broker_link import is_loopback
from edge_server.fleet.actions.action import Desk
from edge_server.fleet.diagnostics.remote_part import Diagnostics, RemotePart
from edge_server.fleet.page import guard, login_routes
from edge_server.fleet.page.app import make_app
from edge_server.fleet.page.lists import FolderLists
from edge_server.fleet.page.page_actions import PageActions
from edge_server.fleet.part import Part, ServiceContext
from edge_server.fleet.people import openid, store
from edge_server.fleet.settings.page import PORT, PageSettings
from edge_server.observability.dashboard.access import access_of
from edge_server.observability.dashboard.bind_address import HOST, listening_socket, resolve_host, url_of
from edge_server.observability.dashboard.server_thread import TlsPair, serving
from edge_server.storage.service_folder import ServiceFolder
from schemas.errors import ConfigError

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
    cert, key = settings.cert.expanduser(), settings.key.expanduser()
    for path in (cert, key):
        if not Path(path).is_file():
            raise ConfigError(f"there is no file {path}", key="[page]")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"[page] cert {cert} and key {key} are not a pair of PEM files: {error}") from error
    return cert, key
