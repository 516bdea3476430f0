"""Enrolling many devices: everything is checked before anything is issued, and an interrupted one goes on.

An archive is the only copy of its key. One that was cut off between the certificate and the archive is marked
in the authority's folder, so that the device gets another.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path

from cryptography import x509

from edge_client.security.identity import certificates, private_files
from edge_server.security.identity import enrolment_codes
from edge_server.security.identity.authority import RESERVED, Authority
from schemas.base import Frozen, is_name, is_of_site, site_of
from schemas.errors import ConfigError

# Which names an authority may sign.


def check_device_name(name: str) -> None:
    """Raise `ConfigError` for a text that is not a name, and for the name of a part of the server."""
    if not is_name(name):
        raise ConfigError(f"'{name}': 1 to 64 letters, digits, dots, dashes, underscores")
    if name in RESERVED:
        raise ConfigError(f"'{name}' is the name of a part of the server", remedy="choose another")


def check_name_of_site(authority: Authority, name: str, *, gateway: bool = False) -> None:
    """Raise `ConfigError` for a name that this authority must not sign, or a site's without `gateway`."""
    site = authority.settings.site
    if site is not None and not is_of_site(name, site):
        raise ConfigError(
            f"'{name}': the authority in {authority.folder} is that of the site '{site}': its devices, and "
            f"the sites within it, are called {site}.NAME"
        )
    if inside := site_of(name, authority.sites()):
        raise ConfigError(
            f"'{name}' belongs to the site '{inside}', whose own authority enrols it",
            remedy=f"run `edge-server enroll {name} --within {inside} --authority DIR` at the site",
        )
    if not gateway and name in authority.sites():
        raise ConfigError(f"'{name}' is a site", remedy="--gateway issues its gateway's certificate")


ISSUING = "issuing"


def issued_already(
    authority: Authority,
    devices: Sequence[tuple[str, str]],
    out: Path,
    *,
    code: bool = False,
    renew: bool = False,
) -> set[str]:
    """The devices whose archive or code lies in `out` already; the others are to be issued.

    `devices` are names, each with where it comes from. Raises `ConfigError` for the first that must not be
    enrolled.
    """
    enrolled, suffix = set(authority.devices()), "code" if code else "tar"
    invited = {record.device for record in enrolment_codes.open_codes(authority)} if code else set()
    kept = set()
    for device, where in devices:
        try:
            check_device_name(device)
            check_name_of_site(authority, device)
            path, known = out / f"{device}.{suffix}", device in enrolled
            if renew:
                continue
            if path.exists() and (known or device in invited):
                kept.add(device)
            else:
                _check_is_free(authority, device, path, known=known)
        except ConfigError as error:
            raise ConfigError(str(error), place=where) from None
    return kept


def _check_is_free(authority: Authority, device: str, path: Path, *, known: bool) -> None:
    if known and not (authority.folder / ISSUING / device).exists():
        raise ConfigError(
            f"'{device}' is enrolled already, and {path} is not there",
            remedy="leave out its row, or give it another certificate with --renew",
        )
    if path.suffix == ".tar" and path.exists() and not known:
        raise ConfigError(
            f"{path} is there and not of this authority", remedy="name another folder with --out"
        )


def issue_marked(authority: Authority, device: str, issue: Callable[[], None]) -> None:
    """Issue one device's archive or code, marked until it lies in its place."""
    mark = private_files.private_folder(authority.folder / ISSUING) / device
    with authority.lock_folder():
        private_files.write_private(mark, b"")
        issue()
        mark.unlink()


# Who is enrolled until when, as an authority's folder has it.


class EnrolmentState(StrEnum):
    """What became of a device's enrolment; `INVITED` has a code that nobody has redeemed."""

    ENROLLED = "enrolled"
    EXPIRED = "expired"
    REVOKED = "revoked"
    INVITED = "invited"


class Enrolment(Frozen):
    """A device of an authority; `until` is when its last certificate ends, or the code of an invited one.

    Times are in seconds since 1970.
    """

    device: str
    state: EnrolmentState
    until: float | None = None
    gateway: bool = False


def enrolments(authority: Authority) -> list[Enrolment]:
    """Every device that was ever enrolled or invited, by name."""
    revoked, now, sites = authority.revoked_serials(), authority.clock(), set(authority.sites())
    by_name: dict[str, Enrolment] = {}
    for device in authority.devices():
        enrolled = _enrolment(authority, device, revoked, now, gateway=device in sites)
        if enrolled is not None:
            by_name[device] = enrolled
    for record in enrolment_codes.open_codes(authority):
        if record.certificate is None:
            until = round(record.expires)
            invited = Enrolment(device=record.device, state=EnrolmentState.INVITED, until=until)
            by_name.setdefault(record.device, invited)
    return [by_name[name] for name in sorted(by_name)]


def _enrolment(
    authority: Authority, device: str, revoked: dict[int, float], now: float, *, gateway: bool
) -> Enrolment | None:
    paths = (authority.folder / "devices" / device).glob("[!.]*.pem")
    issued = [x509.load_pem_x509_certificate(path.read_bytes()) for path in paths]
    if not issued:
        return None
    valid = [certificate for certificate in issued if certificate.serial_number not in revoked]
    periods = [certificates.validity_of(certificate) for certificate in valid or issued]
    until = max(period.not_after for period in periods)
    current = EnrolmentState.ENROLLED if until > now else EnrolmentState.EXPIRED
    state = current if valid else EnrolmentState.REVOKED
    return Enrolment(device=device, state=state, until=until, gateway=gateway)
