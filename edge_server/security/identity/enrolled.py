"""Who is enrolled until when, as an authority's folder has it."""

from enum import StrEnum

from cryptography import x509

from edge_client.security.identity.certificates import validity_of
from edge_server.security.identity.authority import Authority
from edge_server.security.identity.enrolment_codes import open_codes
from schemas.base import Frozen


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
    revoked, now, sites = authority.revoked(), authority.clock(), set(authority.sites())
    known = [
        _enrolment(authority, device, revoked, now, gateway=device in sites) for device in authority.devices()
    ]
    found = {enrolment.device: enrolment for enrolment in known if enrolment is not None}
    for record in open_codes(authority):
        if record.certificate is None and record.device not in found:
            invited = Enrolment(
                device=record.device, state=EnrolmentState.INVITED, until=round(record.expires)
            )
            found[record.device] = invited
    return [found[name] for name in sorted(found)]


def _enrolment(
    authority: Authority, device: str, revoked: dict[int, float], now: float, *, gateway: bool
) -> Enrolment | None:
    paths = (authority.folder / "devices" / device).glob("[!.]*.pem")
    issued = [x509.load_pem_x509_certificate(path.read_bytes()) for path in paths]
    if not issued:
        return None
    valid = [certificate for certificate in issued if certificate.serial_number not in revoked]
    periods = [validity_of(certificate) for certificate in valid or issued]
    until = max(period.not_after for period in periods)
    current = EnrolmentState.ENROLLED if until > now else EnrolmentState.EXPIRED
    state = current if valid else EnrolmentState.REVOKED
    return Enrolment(device=device, state=state, until=until, gateway=gateway)
