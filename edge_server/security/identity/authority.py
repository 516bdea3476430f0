"""The private authority of one federation: a folder of its own, with all keys 0600.

ca.pem ca.key             signs the broker, the server, the devices
door-ca.pem door-ca.key   signs what opens the enrolment listener, and nothing else
broker/                   all that Mosquitto needs, to be copied to its machine
server/ service/ rollout/ identities of `edge-server run`, of `edge-server enroll --serve` and of `rollout`
home/ sparkplug/          of what tells Home Assistant and SCADA hosts of a run
home-assistant/ scada-host/    of Home Assistant itself and of a SCADA host, to be copied to them
devices/NAME/             every certificate issued to that device, by serial number
codes/ revoked/           enrolment codes; revoked serial numbers, with the time
"""

from __future__ import annotations

import contextlib
import fcntl
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
from edge_server.security.identity.settings import DAY_S, FILE, AuthoritySettings, read_settings
from schemas.errors import ConfigError

AUTHORITY_S = 20 * 365 * DAY_S
SERVICE_CERTIFICATE_S = 2 * 365 * DAY_S
"""Broker, server and service: any `edge-server enroll` renews them in their last third."""
RESERVED = tuple(mosquitto.SERVICE_IDENTITIES.values())
"""Names that would let a device pose as one of these."""


@dataclass(frozen=True)
class Authority:
    """An authority that exists; `clock` tells seconds since 1970."""

    folder: Path
    settings: AuthoritySettings
    root: CertificateSigner
    door: CertificateSigner
    clock: Callable[[], float] = field(default=time.time)

    # --- the folder ---
    @property
    def broker(self) -> Path:
        """The folder that Mosquitto reads."""
        return self.folder / "broker"

    @property
    def ca_pem(self) -> bytes:
        """The certificate that everybody trusts."""
        return self.root.certificate.public_bytes(Encoding.PEM)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One change at a time, whichever process makes it."""
        with (self.folder / "lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    # --- devices ---
    def issue(self, device: str, key: ec.EllipticCurvePublicKey) -> x509.Certificate:
        """A certificate for a device, entered among those that it was given."""
        lifetime_s = self.settings.device_lifetime_s
        made = client_certificate(self.root, device, key, lifetime_s=lifetime_s, now=self.clock())
        folder = private_folder(self.folder / "devices" / device)
        write_private(folder / f"{made.serial_number:x}.pem", made.public_bytes(Encoding.PEM))
        return made

    def devices(self) -> list[str]:
        """Every device that was ever given a certificate."""
        return sorted(path.name for path in (self.folder / "devices").iterdir())

    def certificates(self, device: str) -> list[x509.Certificate]:
        """A device's certificates that are neither revoked nor over, the newest first."""
        revoked, now = self._revoked(), self.clock()
        issued = [
            x509.load_pem_x509_certificate(path.read_bytes())
            for path in (self.folder / "devices" / device).glob("*.pem")
        ]
        good = [one for one in issued if one.serial_number not in revoked and validity_of(one).left(now) > 0]
        return sorted(good, key=lambda one: validity_of(one).not_after, reverse=True)

    # --- revocation ---
    def revoke(self, device: str) -> int:
        """Revoke all that a device holds, and write the list anew; returns how many certificates."""
        serials = [one.serial_number for one in self.certificates(device)]
        for serial in serials:
            write_private(self.folder / "revoked" / f"{serial:x}", str(self.clock()).encode())
        self.write_revocation_list()
        return len(serials)

    def write_revocation_list(self) -> None:
        """Put the list where the broker reads it."""
        signed = revocation_list(self.root, self._revoked().items(), now=self.clock())
        write_private(self.broker / mosquitto.REVOKED, signed)

    def _revoked(self) -> dict[int, float]:
        return {
            int(path.name, 16): float(path.read_text()) for path in (self.folder / "revoked").glob("[!.]*")
        }


def open_authority(folder: Path, *, clock: Callable[[], float] = time.time) -> Authority:
    """An authority that was made before; raises `ConfigError` where there is none."""
    settings = read_settings(folder)
    try:
        root, door = _load_signer(folder / "ca"), _load_signer(folder / "door-ca")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{folder}: the authority's files are damaged: {error}") from error
    return Authority(folder, settings, root, door, clock)


def make_authority(
    folder: Path, settings: AuthoritySettings, *, clock: Callable[[], float] = time.time
) -> Authority:
    """A new authority; what a making that was cut short has left is used."""
    private_folder(folder)
    for name in ("broker", "server", "service", "devices", "codes", "revoked"):
        private_folder(folder / name)
    for name in ("ca", "door-ca"):
        if not (folder / f"{name}.pem").exists():
            title = f"{settings.federation} {'enrolment ' if name == 'door-ca' else ''}authority"
            signer = make_signer(title[:64], lifetime_s=AUTHORITY_S, now=clock())
            write_private(folder / f"{name}.key", key_pem(signer.key))
            write_private(folder / f"{name}.pem", signer.certificate.public_bytes(Encoding.PEM))
    # Written last: where it stands, the authority is whole.
    write_private(folder / FILE, settings.to_toml().encode())
    return open_authority(folder, clock=clock)


def renew_service_certificates(authority: Authority) -> None:
    """Give broker, server and service what they lack or what ends soon, and write the broker's files."""
    folder, settings = authority.folder, authority.settings
    write_private(folder / FILE, settings.to_toml().encode())
    for place in ("broker", *mosquitto.SERVICE_IDENTITIES):
        # An authority of an earlier version has no folder for the newest of them.
        write_private(private_folder(folder / place) / "ca.pem", authority.ca_pem)
    write_private(
        authority.broker / mosquitto.ENROLMENT_CA, authority.door.certificate.public_bytes(Encoding.PEM)
    )
    _renew_station(authority, authority.broker / "broker", None)
    for place, name in mosquitto.SERVICE_IDENTITIES.items():
        _renew_station(authority, folder / place / place, name)
    if not (authority.broker / mosquitto.REVOKED).exists():
        authority.write_revocation_list()
    texts = mosquitto.mosquitto_files(settings, Path(settings.broker_folder or authority.broker.resolve()))
    for name, text in texts.items():
        write_private(authority.broker / name, text.encode())


def _renew_station(authority: Authority, stem: Path, name: str | None) -> None:
    """A new key and certificate, for the broker where there is no `name`, unless what is there will do."""
    path, now, hosts = stem.with_suffix(".pem"), authority.clock(), authority.settings.hosts
    if path.exists():
        there = x509.load_pem_x509_certificate(path.read_bytes())
        if not needs_renewal(validity_of(there), now) and (name or _hosts_of(there) == set(hosts)):
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
