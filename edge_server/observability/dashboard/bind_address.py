"""Bind address of the dashboard: loopback, or any other address if a token is set."""

import argparse
import contextlib
import ipaddress
import socket
from collections.abc import Sequence

from schemas.errors import ConfigError

HOST, PORT = "127.0.0.1", 8265
BACKLOG = 128
TOKEN_VARIABLE = "EDGE_DASHBOARD_TOKEN"
SHORTEST_TOKEN = 16  # Minimum characters of a token where other machines can reach the dashboard

BindAddress = tuple[str, int | None]  # Host, and port if one was given
DEFAULT_ADDRESS: BindAddress = (HOST, None)


def parse_bind_address(text: str) -> BindAddress:
    """Parse `HOST:PORT`, `HOST`, `:PORT`, `PORT`, `[::1]:PORT` or an empty text; an argparse type."""
    if text.isdecimal():
        host, port = HOST, text
    elif text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
    elif text.count(":") > 1:
        host, port = text, ""
    else:
        host, _, port = text.partition(":")
    if (port and not port.isdecimal()) or int(port or 0) > 65535 or "/" in host or host.endswith(".toml"):
        raise argparse.ArgumentTypeError(
            f"'{text}' is not HOST:PORT (for instance {HOST}:{PORT}); other words go before the option"
        )
    return host or HOST, int(port) if port else None


def bind_socket(listen: BindAddress, token: str | None) -> socket.socket:
    """A listening socket; raises `ConfigError` with the remedy.

    Without a given port it tries the default port, then any free one.
    """
    host, port = listen
    family, address = resolve_host(host)
    _check_token(host, address, token)
    try:
        return listening_socket(family, address, (PORT, 0) if port is None else (port,))
    except OSError as error:
        remedy = f"name another address, or {host} without a port to use any free one"
        raise ConfigError(
            f"the dashboard cannot listen at {host}:{port or 0}: {error.strerror or error}", remedy=remedy
        ) from error


def url_of(host: str, port: int) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}"


def listening_socket(family: socket.AddressFamily, address: str, ports: Sequence[int]) -> socket.socket:
    """A socket that listens at the first of these ports that is free; raises the last one's `OSError`."""
    *others, last = ports
    for port in others:
        with contextlib.suppress(OSError):
            return _listen(family, (address, port))
    return _listen(family, (address, last))


def _listen(family: socket.AddressFamily, place: tuple[str, int]) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(place)
        made.listen(BACKLOG)
    except BaseException:
        made.close()
        raise
    return made


def resolve_host(host: str) -> tuple[socket.AddressFamily, str]:
    """The first address of a host; raises `ConfigError` if it has none here."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"the dashboard cannot listen at {host}: there is no such address here",
            remedy="other words go before the option",
        ) from error
    family, _, _, _, address = found[0]
    return family, str(address[0])


def _check_token(host: str, address: str, token: str | None) -> None:
    """Raise `ConfigError` where other machines can reach the dashboard without a sufficient token."""
    if ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        return
    if not token:
        raise ConfigError(
            f"the dashboard at {host} can be reached from other machines",
            remedy=f"give it --dashboard-token TOKEN (or {TOKEN_VARIABLE} in the environment), or "
            f"listen at {HOST}",
        )
    if len(token) < SHORTEST_TOKEN:
        raise ConfigError(
            f"--dashboard-token has {len(token)} characters: {host} can be reached from other machines, "
            f"so at least {SHORTEST_TOKEN} are required",
            remedy="`openssl rand -hex 16` makes one",
        )
