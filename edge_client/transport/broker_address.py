"""Addresses of brokers: `mqtt://host:1883`, or `mqtts://host:8883` with certificates."""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from schemas.errors import ConfigError, nearest

PORTS = {"mqtt": 1883, "mqtts": 8883}


@dataclass(frozen=True)
class TlsFiles:
    """PEM files: the authority of the broker's certificate, and this client's certificate and key."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


@dataclass(frozen=True)
class BrokerAddress:
    """A broker, and how this client authenticates to it."""

    host: str
    port: int
    tls: TlsFiles | None = None
    username: str | None = None
    password: str | None = None

    def __str__(self) -> str:
        return f"{'mqtts' if self.tls else 'mqtt'}://{self.host}:{self.port}"


def parse_address(url: str, tls: TlsFiles | None = None) -> BrokerAddress:
    """Read `mqtt[s]://[user[:password]@]host[:port]`; raises `ConfigError` with an example."""
    parts = urlsplit(url if "://" in url else f"mqtt://{url}")
    if parts.scheme not in PORTS:
        raise ConfigError(f"broker '{url}': unknown scheme{nearest(parts.scheme, PORTS)}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigError(f"broker '{url}': {error}") from error
    if not host:
        raise ConfigError(f"broker '{url}': no host (for instance mqtt://192.168.1.10:1883)")
    for file in (tls.ca, tls.certificate, tls.key) if tls else ():
        if file is not None and not file.is_file():
            raise ConfigError(f"broker '{url}': there is no file {file} (--ca, --cert, --key)")
    secure = (tls or TlsFiles()) if parts.scheme == "mqtts" else None
    return BrokerAddress(host, port or PORTS[parts.scheme], secure, parts.username, parts.password)
