"""An authority's settings, for one federation and one broker; stored in its folder as `authority.toml`."""

import os
import tomllib
from dataclasses import replace
from pathlib import Path

import tomli_w
from pydantic import Field, ValidationError

from edge_client.transport.broker_link import BrokerAddress, TlsFiles
from edge_server.config.errors import explain
from schemas.base import Name, Settings
from schemas.errors import ConfigError


def service_broker_address(
    address: BrokerAddress, service: str, authority: Path | None, *, section: str
) -> BrokerAddress:
    """The broker's address with a service's certificate; raises `ConfigError` if its files are missing.

    They are in the `authority`'s folder, by default the one that contains the server's own certificate. One
    certificate cannot serve two connections, because its name is the client identifier.
    """
    if address.tls is None or (authority is None and address.tls.certificate is None):
        return address
    own = address.tls.certificate
    folder = authority if authority is not None else Path(str(own)).absolute().parent.parent
    own_folder = folder / service
    files = TlsFiles(own_folder / "ca.pem", own_folder / f"{service}.pem", own_folder / f"{service}.key")
    for file in (files.ca, files.certificate, files.key):
        if file is not None and not file.is_file():
            raise ConfigError(
                f"[{section}] there is no {file}",
                remedy="`edge-server enroll` makes it when a device is enrolled; name the "
                "authority's folder with authority = DIR",
            )
    return replace(address, tls=files)


FILE = "authority.toml"
DAY_S = 86_400.0


class AuthoritySettings(Settings):
    """`hosts` are the names and addresses of the broker; devices use the first.

    `enrolment_port` is the port for redeeming codes, `device_days` the lifetime of a device's certificate,
    `broker_folder` where the broker finds its files if not here. The authority of a `site` issues
    certificates to that site's devices alone.
    """

    federation: Name = "federation"
    hosts: tuple[str, ...] = Field(min_length=1)
    port: int = Field(default=8883, ge=1, le=65_535)
    enrolment_port: int = Field(default=8884, ge=1, le=65_535, alias="door-port")
    device_days: float = Field(default=365.0, gt=0, le=10_000)
    broker_folder: str | None = None
    site: Name | None = None

    @property
    def broker(self) -> str:
        """The broker's URL for devices and the server."""
        return f"mqtts://{_in_url(self.hosts[0])}:{self.port}"

    @property
    def enrolment_url(self) -> str:
        """The broker's URL for redeeming an enrolment code."""
        return f"mqtts://{_in_url(self.hosts[0])}:{self.enrolment_port}"

    @property
    def device_lifetime_s(self) -> float:
        """Lifetime of a device's certificate in seconds."""
        return self.device_days * DAY_S

    def to_toml(self) -> str:
        return tomli_w.dumps(self.model_dump(mode="json", by_alias=True, exclude_none=True))


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def read_settings(folder: Path) -> AuthoritySettings:
    """Read an authority's settings; raises `ConfigError`."""
    path = folder / FILE
    try:
        return AuthoritySettings.model_validate(tomllib.loads(path.read_text()), by_alias=True, by_name=False)
    except FileNotFoundError:
        remedy = (
            "name its federation with --federation NAME, or its folder with --authority DIR, or make one "
            "with `edge-server enroll DEVICE --out DIR`"
        )
        raise ConfigError(f"there is no authority in {folder}", remedy=remedy) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"cannot be read: {error}", place=path) from error
    except ValidationError as error:
        raise explain(error, AuthoritySettings, str(path)) from error


def default_folder(federation: str) -> Path:
    base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(base).expanduser() / "edge-federation" / "authority" / federation
