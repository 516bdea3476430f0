"""The page's server: where it listens, with which certificate, and its threads."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from edge_server.fleet.page.app import PageParts, make_app
from edge_server.fleet.page.interfaces import FleetActions, FleetLists
from edge_server.fleet.page.login_routes import DONE
from edge_server.fleet.page.visitor import Reception
from edge_server.fleet.people.openid import OpenIdProvider
from edge_server.fleet.people.store import People
from edge_server.fleet.settings.page import PORT, PageSettings, is_loopback
from edge_server.observability.dashboard.access import access_of
from edge_server.observability.dashboard.bind_address import HOST, listening_socket, resolved, url_of
from edge_server.observability.dashboard.server_thread import TlsPair, serving
from schemas.errors import ConfigError


@dataclass(frozen=True)
class ServedPage:
    """A page that listens at `address`; `url` is where browsers find it."""

    url: str
    address: tuple[str, int]


@contextmanager
def serve_page(
    settings: PageSettings,
    people: People,
    *,
    lists: FleetLists,
    actions: FleetActions,
    setup: str,
) -> Iterator[ServedPage]:
    """Serve the page until the block ends. Raises `ConfigError` for an unusable address or certificate."""
    tls = _checked_tls(settings)
    host = page_host(settings, people)
    family, address = resolved(host)
    bound = _bound(family, address, settings.port)
    port = bound.getsockname()[1]
    url = url_of(host, port).replace("http://", "https://" if tls else "http://")
    access = access_of(host, port, None, bound=address, also=settings.url)
    reception = Reception(people, settings, port)
    app = make_app(PageParts(reception, actions, lists, access, _provider(settings), setup))
    with serving(app, bound, url=url, name="page", tls=tls, proxies=settings.proxies):
        yield ServedPage(settings.url or url, (address, port))


def _bound(family: socket.AddressFamily, address: str, port: int | None) -> socket.socket:
    ports = (PORT, 0) if port is None else (port,)
    for candidate in ports[:-1]:
        with suppress(OSError):
            return listening_socket(family, address, candidate)
    try:
        return listening_socket(family, address, ports[-1])
    except OSError as error:
        raise ConfigError(
            f"the page cannot listen at {address}:{ports[-1]}: {error.strerror or error}; "
            "name another [page] port in service.toml"
        ) from error


def page_host(settings: PageSettings, people: People) -> str:
    """Where to listen: without any user, this machine only."""
    return settings.host if has_users(settings, people) or is_loopback(settings.host) else HOST


def has_users(settings: PageSettings, people: People) -> bool:
    """Whether anybody can log in."""
    return settings.oidc is not None or bool(people.users())


def _provider(settings: PageSettings) -> OpenIdProvider | None:
    if settings.oidc is None or settings.url is None:
        return None
    return OpenIdProvider(settings.oidc, settings.url.rstrip("/") + DONE)


def _checked_tls(settings: PageSettings) -> TlsPair | None:
    """The files of the certificate, which are one pair; raises `ConfigError`."""
    if settings.cert is None or settings.key is None:
        return None
    cert, key = settings.cert.expanduser(), settings.key.expanduser()
    for path in (cert, key):
        if not Path(path).is_file():
            raise ConfigError(f"[page]: there is no file {path}")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"[page] cert {cert} and key {key} are no pair of PEM files: {error}") from error
    return cert, key
