"""Where the dashboard listens: this machine only, unless it has a token to ask for."""

from __future__ import annotations

import argparse
import contextlib
import ipaddress
import socket

from schemas.errors import ConfigError

HOST, PORT = "127.0.0.1", 8265
BACKLOG = 128
TOKEN_VARIABLE = "EDGE_DASHBOARD_TOKEN"
SHORTEST_TOKEN = 16
"""Of a token that anybody on a network may guess at."""

Listen = tuple[str, int | None]
"""Host, and port where one was named."""
DEFAULT_ADDRESS: Listen = (HOST, None)


def listen_address(text: str) -> Listen:
    """`HOST:PORT`, `HOST`, `:PORT`, `PORT`, `[::1]:PORT`, or nothing for the default; an argument's type."""
    if text.isdigit():
        host, port = HOST, text
    elif text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
    elif text.count(":") > 1:
        host, port = text, ""
    else:
        host, _, port = text.partition(":")
    if (port and not port.isdigit()) or int(port or 0) > 65535 or "/" in host or host.endswith(".toml"):
        raise argparse.ArgumentTypeError(
            f"'{text}' is not HOST:PORT (for instance {HOST}:{PORT}); other words go before --dashboard"
        )
    return host or HOST, int(port) if port else None


def bound_socket(listen: Listen, token: str | None) -> socket.socket:
    """A socket that listens already; raises `ConfigError` with the remedy.

    Without a named port the usual one is tried, and where that is taken any free one does.
    """
    host, port = listen
    family, address = _resolved(host)
    _check_reach(host, address, token)
    ports = (PORT, 0) if port is None else (port,)
    for one in ports:
        with contextlib.suppress(OSError):
            return _listening(family, address, one)
    try:
        return _listening(family, address, ports[-1])
    except OSError as error:
        remedy = f"name another address, or only {host}: any free port is taken then"
        raise ConfigError(
            f"the dashboard cannot listen at {host}:{ports[-1]}: {error.strerror or error}; {remedy}"
        ) from error


def url_of(host: str, port: int) -> str:
    """The address for people."""
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}"


def _listening(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((address, port))
        made.listen(BACKLOG)
    except BaseException:
        made.close()
        raise
    return made


def _resolved(host: str) -> tuple[socket.AddressFamily, str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"the dashboard cannot listen at {host}: there is no such address here; "
            "other words go before --dashboard"
        ) from error
    family, _, _, _, address = found[0]
    return family, str(address[0])


def _check_reach(host: str, address: str, token: str | None) -> None:
    """Whoever reaches it sees everything: beyond this machine a token is asked for."""
    if ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        return
    if not token:
        raise ConfigError(
            f"the dashboard at {host} can be reached from other machines: give it --dashboard-token TOKEN "
            f"(or {TOKEN_VARIABLE} in the environment), or listen at {HOST}"
        )
    if len(token) < SHORTEST_TOKEN:
        raise ConfigError(
            f"--dashboard-token has {len(token)} characters: {host} can be reached from other machines, and "
            f"{SHORTEST_TOKEN} are the least there; `openssl rand -hex 16` makes one"
        )
