"""The private certificate authority of one federation: a folder, with all keys 0600.

ca.pem ca.key             signs the broker, the server, the devices
door-ca.pem door-ca.key   signs the certificates of enrolment codes, and nothing else
broker/                   all files that Mosquitto needs, to be copied to its machine
server/ service/ rollout/ identities of `edge-server run`, of `edge-server enroll --serve` and of `rollout`
fleet/ operator/ updates/ identities of `edge-server serve`, of commands to devices, of rollouts of the client
home/ sparkplug/          identities of the Home Assistant and Sparkplug integrations
home-assistant/ scada-host/    identities of Home Assistant and of a SCADA host, to be copied to them
devices/NAME/             every certificate issued to that device or site, by serial number
sites/NAME                marks the names that are those of sites
codes/ revoked/           enrolment codes; revoked serial numbers, with the time
issuing/NAME              marks a device of a fleet file whose archive is being written
"""

import contextlib
import fcntl
import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from edge_client.security.identity.certificates import key_pem, load_key, new_key, validity_of
from edge_client.security.identity.private_files import private_folder, write_private
from edge_client.security.identity.validity import needs_renewal
from edge_server.security.identity import mosquitto
from edge_server.security.identity.certificates import (
    CertificateSigner,
    broker_certificate,
    client_certificate,
    make_signer,
    revocation_list,
)
from edge_server.security.identity.settings import (
    DAY_S,
    FILE,
    AuthoritySettings,
    default_folder,
    read_settings,
)
from schemas.errors import ConfigError

AUTHORITY_S = 20 * 365 * DAY_S
SERVICE_CERTIFICATE_S = 2 * 365 * DAY_S
"""Broker, server and service: any `edge-server enroll` renews them in their last third."""
RESERVED = tuple(mosquitto.SERVICE_IDENTITIES.values())
"""Names that no device may have, because services use them."""


@dataclass(frozen=True)
class Authority:
    """An existing authority; `clock` returns seconds since 1970."""

    folder: Path
    settings: AuthoritySettings
    root: CertificateSigner
    enrolment_signer: CertificateSigner
    clock: Callable[[], float] = field(default=time.time)

    # --- the folder ---
    @property
    def option(self) -> str:
        """What a command needs behind a blank to find this authority again; empty for the default one."""
        name = self.settings.federation
        if self.folder != default_folder(name):
            return f" --authority {shlex.quote(str(self.folder))}"
        return "" if name == "federation" else f" --federation {name}"

    @property
    def broker(self) -> Path:
        """The folder that Mosquitto reads."""
        return self.folder / "broker"

    @property
    def ca_pem(self) -> bytes:
        """The root certificate, which all clients trust."""
        return self.root.certificate.public_bytes(Encoding.PEM)

    @contextlib.contextmanager
    def lock_folder(self) -> Iterator[None]:
        """Lock the folder against changes by other processes."""
        with (self.folder / "lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    # --- devices ---
    def issue(self, device: str, key: ec.EllipticCurvePublicKey) -> x509.Certificate:
        """Issue a certificate for a device, and record it."""
        lifetime_s = self.settings.device_lifetime_s
        made = client_certificate(self.root, device, key, lifetime_s=lifetime_s, now=self.clock())
        folder = private_folder(self.folder / "devices" / device)
        write_private(folder / f"{made.serial_number:x}.pem", made.public_bytes(Encoding.PEM))
        return made

    def sites(self) -> list[str]:
        """Every site whose gateway was ever given a certificate."""
        return sorted(path.name for path in (self.folder / "sites").glob("*"))

    def devices(self) -> list[str]:
        """Every device that was ever given a certificate."""
        return sorted(path.name for path in (self.folder / "devices").iterdir())

    def certificates(self, device: str) -> list[x509.Certificate]:
        """A device's certificates that are neither revoked nor expired, the newest first."""
        revoked, now = self.revoked_serials(), self.clock()
        paths = (self.folder / "devices" / device).glob("*.pem")
        issued = [x509.load_pem_x509_certificate(path.read_bytes()) for path in paths]
        valid = [
            certificate
            for certificate in issued
            if certificate.serial_number not in revoked and validity_of(certificate).seconds_left(now) > 0
        ]
        return sorted(valid, key=lambda certificate: validity_of(certificate).not_after, reverse=True)

    # --- revocation ---
    def revoke(self, device: str) -> int:
        """Revoke all of a device's certificates and rewrite the revocation list; returns their number."""
        serials = [certificate.serial_number for certificate in self.certificates(device)]
        for serial in serials:
            write_private(self.folder / "revoked" / f"{serial:x}", str(self.clock()).encode())
        self.write_revocation_list()
        return len(serials)

    def write_revocation_list(self) -> None:
        signed = revocation_list(self.root, self.revoked_serials().items(), now=self.clock())
        write_private(self.broker / mosquitto.REVOKED, signed)

    def revoked_serials(self) -> dict[int, float]:
        """The revoked serial numbers, each with the time of its revocation."""
        paths = (self.folder / "revoked").glob("[!.]*")
        return {int(path.name, 16): float(path.read_text()) for path in paths}


def open_authority(folder: Path, *, clock: Callable[[], float] = time.time) -> Authority:
    """An existing authority; raises `ConfigError` if there is none."""
    settings = read_settings(folder)
    try:
        root, enrolment = _load_signer(folder / "ca"), _load_signer(folder / "door-ca")
    except (OSError, ValueError) as error:
        raise ConfigError(f"the authority's files are damaged: {error}", place=folder) from error
    return Authority(folder, settings, root, enrolment, clock)


def make_authority(
    folder: Path, settings: AuthoritySettings, *, clock: Callable[[], float] = time.time
) -> Authority:
    """Make a new authority, or complete an interrupted one."""
    private_folder(folder)
    for name in ("broker", "server", "service", "devices", "codes", "revoked"):
        private_folder(folder / name)
    for name in ("ca", "door-ca"):
        if not (folder / f"{name}.pem").exists():
            title = f"{settings.federation} {'enrolment ' if name == 'door-ca' else ''}authority"
            signer = make_signer(title[:64], lifetime_s=AUTHORITY_S, now=clock())
            write_private(folder / f"{name}.key", key_pem(signer.key))
            write_private(folder / f"{name}.pem", signer.certificate.public_bytes(Encoding.PEM))
    # Written last: an authority with this file is complete.
    write_private(folder / FILE, settings.to_toml().encode())
    return open_authority(folder, clock=clock)


def renew_service_certificates(authority: Authority) -> None:
    """Make or renew the certificates of the broker and of all services, and write the broker's files."""
    folder, settings = authority.folder, authority.settings
    write_private(folder / FILE, settings.to_toml().encode())
    for place in ("broker", *mosquitto.SERVICE_IDENTITIES):
        write_private(private_folder(folder / place) / "ca.pem", authority.ca_pem)
    enrolment_ca = authority.enrolment_signer.certificate.public_bytes(Encoding.PEM)
    write_private(authority.broker / mosquitto.ENROLMENT_CA, enrolment_ca)
    _renew_service(authority, authority.broker / "broker", None)
    for place, name in mosquitto.SERVICE_IDENTITIES.items():
        _renew_service(authority, folder / place / place, name)
    if not (authority.broker / mosquitto.REVOKED).exists():
        authority.write_revocation_list()
    texts = mosquitto.mosquitto_files(settings, Path(settings.broker_folder or authority.broker.resolve()))
    for name, text in texts.items():
        write_private(authority.broker / name, text.encode())


def _renew_service(authority: Authority, stem: Path, name: str | None) -> None:
    """Make a key and certificate for a service, or for the broker (no `name`), unless they last."""
    path, now, hosts = stem.with_suffix(".pem"), authority.clock(), authority.settings.hosts
    if path.exists():
        present = x509.load_pem_x509_certificate(path.read_bytes())
        if not needs_renewal(validity_of(present), now) and (name or _hosts_of(present) == set(hosts)):
            return
    key = new_key()
    terms = {"lifetime_s": SERVICE_CERTIFICATE_S, "now": now}
    if name is None:
        made = broker_certificate(authority.root, hosts, key.public_key(), **terms)
    else:
        made = client_certificate(authority.root, name, key.public_key(), **terms)
    write_private(stem.with_suffix(".key"), key_pem(key))
    write_private(path, made.public_bytes(Encoding.PEM))


def _hosts_of(certificate: x509.Certificate) -> set[str]:
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(name.value) for name in names}


def _load_signer(stem: Path) -> CertificateSigner:
    certificate = x509.load_pem_x509_certificate(stem.with_suffix(".pem").read_bytes())
    return CertificateSigner(certificate, load_key(stem.with_suffix(".key").read_bytes()))
