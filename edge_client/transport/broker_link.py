"""The address of a broker, and the events that a connection to it puts into its owner's inbox.

Addresses: `mqtt://host:1883`, `mqtts://host:8883` with certificates, or WebSockets: `wss://host/mqtt`.
"""

import ipaddress
import queue
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from schemas.errors import ConfigError, nearest

PORTS = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}
SECURE = ("mqtts", "wss")
WEBSOCKET_PATH = "/mqtt"


@dataclass(frozen=True)
class TlsFiles:
    """PEM files: the authority of the broker's certificate, and this client's certificate and key."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


@dataclass(frozen=True)
class BrokerAddress:
    """A broker, and how this client authenticates to it; with a `path` it speaks MQTT over WebSockets."""

    host: str
    port: int
    tls: TlsFiles | None = None
    username: str | None = None
    password: str | None = None
    path: str | None = None

    def __str__(self) -> str:
        plain = "mqtt" if self.path is None else "ws"
        return f"{plain}{'s' if self.tls else ''}://{self.host}:{self.port}{self.path or ''}"


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches that host; of names only `localhost` counts."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def parse_address(
    url: str, tls: TlsFiles | None = None, *, named: str = "--ca, --cert, --key"
) -> BrokerAddress:
    """Read `mqtt[s]://[user[:password]@]host[:port]`, or `ws[s]://` with a path; raises `ConfigError`.

    A user names the files of `tls` as `named` says.
    """
    parts = urlsplit(url if "://" in url else f"mqtt://{url}")
    if parts.scheme not in PORTS:
        raise ConfigError(f"unknown scheme{nearest(parts.scheme, PORTS)}", key=f"broker '{url}'")
    try:
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigError(str(error), key=f"broker '{url}'") from error
    if not host:
        raise ConfigError("no host (for instance mqtt://192.168.1.10:1883)", key=f"broker '{url}'")
    for file in (tls.ca, tls.certificate, tls.key) if tls else ():
        if file is not None and not file.is_file():
            raise ConfigError(f"there is no file {file} ({named})", key=f"broker '{url}'")
    secure = (tls or TlsFiles()) if parts.scheme in SECURE else None
    path = (parts.path or WEBSOCKET_PATH) if parts.scheme.startswith("ws") else None
    return BrokerAddress(host, port or PORTS[parts.scheme], secure, parts.username, parts.password, path)


@dataclass(frozen=True)
class LinkUp:
    """Connected. `session` counts this client's connections; `max_packet` is the broker's limit in bytes."""

    session: int
    max_packet: int | None


@dataclass(frozen=True)
class LinkDown:
    """The connection ended, was refused, or could not be made; paho tries again.

    `downgrade`: MQTT 3.1.1 is tried next. `lasting`: no further try can succeed. `taken_over`: another client
    uses the same name, or so it seems. `silent`: the broker has never answered.
    """

    reason: str
    downgrade: bool = False
    lasting: bool = False
    taken_over: bool = False
    silent: bool = False


@dataclass(frozen=True)
class Arrived:
    """A message arrived."""

    topic: str
    payload: bytes
    retained: bool = False


@dataclass(frozen=True)
class Confirmed:
    """The broker has acknowledged message `mid`."""

    mid: int


@dataclass(frozen=True)
class NotGranted:
    code: int
    reason: str


@dataclass(frozen=True)
class Subscribed:
    """The broker has answered a subscription; what it retains for it follows."""


LinkEvent = LinkUp | LinkDown | Arrived | Confirmed | NotGranted | Subscribed
Inbox = queue.SimpleQueue[Any]


class TaggedInbox:
    """The inbox of one link among several: its events go, tagged, into that of their owner."""

    def __init__(self, inbox: Inbox, tag: Callable[[LinkEvent], Any]) -> None:
        self._inbox, self._tag = inbox, tag

    def put(self, event: LinkEvent) -> None:
        self._inbox.put(self._tag(event))

    def qsize(self) -> int:
        return self._inbox.qsize()
