"""`service.toml`: the settings of `edge-server serve`."""

import tomllib
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from edge_client.transport.broker_link import SECURE, BrokerAddress, TlsFiles, parse_address
from edge_server.config.errors import explain
from edge_server.config.measures import NamedPath
from edge_server.fleet.settings.alerts import AlertSettings
from edge_server.fleet.settings.page import PageSettings
from schemas.base import Name, Settings
from schemas.errors import MAX_SECONDS, ConfigError


class MetricsSettings(Settings):
    """Metrics of the fleet for Prometheus; none are served without an address."""

    listen: str | None = None
    """Where `/metrics` is served, such as `127.0.0.1:9465`; there is no authentication."""
    devices: bool = False
    """Also serve gauges of each device, with the device's name as a label."""


class ServedFederation(Settings):
    """One federation of the service, and how its broker is reached.

    On a broker with certificates `authority` is the folder of `edge-server enroll`: the service uses its
    `fleet/`, commands to devices its `operator/`. Without the folder `ca`, `cert` and `key` name the files.
    """

    name: Name = "federation"
    """Name of the federation."""
    broker: str = "mqtt://127.0.0.1:1883"
    """The devices' broker, mqtt://HOST:1883 or mqtts://HOST:8883; ws:// and wss:// for WebSockets."""
    authority: NamedPath | None = None
    """The authority's folder, on this machine."""
    ca: NamedPath | None = None
    """Certificate of the broker's authority."""
    cert: NamedPath | None = None
    """The certificate of this service, edge-fleet."""
    key: NamedPath | None = None
    """Its private key."""
    mosquitto_pid_file: NamedPath | None = None
    """Mosquitto's pid file, if it runs on this machine: revoking a device ends its connection."""

    def address(self, identity: str = "fleet") -> BrokerAddress:
        """The broker, with the certificate of `fleet` or `operator`; raises `ConfigError`."""
        named = f"service.toml, [[federations]] {self.name}: authority, or ca, cert, key"
        return parse_address(self.broker, self.tls(identity), named=named)

    def tls(self, identity: str) -> TlsFiles:
        if self.authority is None or self.broker.partition("://")[0] not in SECURE:
            return TlsFiles(self.ca, self.cert, self.key)
        folder = self.authority / identity
        return TlsFiles(folder / "ca.pem", folder / f"{identity}.pem", folder / f"{identity}.key")


class JobSettings(Settings):
    """How the service runs its jobs."""

    at_once: int = Field(default=2, ge=1, le=64)
    """Jobs that run at the same time, at most."""
    grace_s: float = Field(default=300, ge=0, le=MAX_SECONDS)
    """How long a running job may lack its eligible devices before it is suspended, in seconds."""
    keep_runs: int = Field(default=0, ge=0, le=100)
    """Run folders that are kept of each job, the newest; 0 keeps all. The registry keeps models anyway."""


class ServiceSettings(Settings):
    """A whole `service.toml`."""

    federations: Annotated[tuple[ServedFederation, ...], Field(max_length=64)] = ()
    """The federations whose devices the service follows, each a table `[[federations]]`."""
    alerts: AlertSettings = AlertSettings.model_construct()
    """Alerts: rules in tables `[[alerts.rules]]`, receivers in tables `[alerts.receivers.NAME]`."""
    metrics: MetricsSettings = MetricsSettings.model_construct()
    """Metrics of the fleet for Prometheus."""
    jobs: JobSettings = JobSettings.model_construct()
    """The queue of jobs."""
    page: PageSettings = PageSettings.model_construct()
    """The page and the API."""

    def federation(self, name: str | None) -> ServedFederation:
        """The federation of that name, or the only one; raises `ConfigError`."""
        names = [served.name for served in self.federations]
        if name is None and len(names) == 1:
            return self.federations[0]
        if name in names:
            return self.federations[names.index(name)]
        if not names:
            raise ConfigError(
                "service.toml names no federation",
                remedy="add a table [[federations]] with `name` and `broker`",
            )
        if name is None:
            raise ConfigError(f"name one of the federations with --federation: {', '.join(names)}")
        raise ConfigError(
            f"service.toml has no federation '{name}' (known: {', '.join(names)})",
            remedy="name one of these (in a federation file or job: federation.name=NAME), or add a table "
            "[[federations]]",
        )


def load_service_settings(path: Path) -> ServiceSettings:
    """Read `service.toml`; a missing file has the defaults. Raises `ConfigError`."""
    try:
        table = tomllib.loads(path.read_text())
    except FileNotFoundError:
        return ServiceSettings()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {error}", place=path) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not valid TOML: {error}", place=path) from error
    try:
        settings = ServiceSettings.model_validate(table, by_alias=True, by_name=False, context=path.parent)
    except ValidationError as error:
        raise explain(error, ServiceSettings, str(path)) from error
    names = [served.name for served in settings.federations]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(
            f"[[federations]] '{twice}' is named twice", place=path, remedy="one table per federation"
        )
    return settings
