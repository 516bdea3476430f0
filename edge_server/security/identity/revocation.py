"""Revoking a device: its certificates and codes, the broker's list, its open connection."""

from dataclasses import dataclass

from edge_server.security.identity import enrolment_codes, eviction, mosquitto
from edge_server.security.identity.authority import Authority
from schemas.errors import ConfigError, format_count, nearest


@dataclass(frozen=True)
class Revocation:
    """What was done: `certificates` revoked, whether the broker has `reloaded` its list and the device was
    `evicted`; `missing` says why the list could not be copied to the broker's folder.
    """

    authority: Authority
    device: str
    certificates: int
    reloaded: bool = False
    evicted: bool = False
    missing: str | None = None

    def lines(self) -> list[str]:
        """What was done, and what is left to do, in words."""
        count = format_count(self.certificates, "certificate")
        done = [f"{self.device}: {count} revoked, no code is left"]
        if self.reloaded or self.evicted:
            return done
        path = self.authority.broker / mosquitto.REVOKED
        why = f" ({self.missing})" if self.missing else ""
        return [
            *done,
            f"It is let in until Mosquitto has read {path}{why}.",
            "Copy that to where the broker reads it, send Mosquitto SIGHUP, then end an open connection:",
            f"  edge-server revoke {self.device} --evict{self.authority.option}",
        ]


def check_is_known(authority: Authority, device: str) -> None:
    """Raise `ConfigError` for a device that was neither enrolled nor given a code."""
    if device not in authority.devices() and not enrolment_codes.withdraw_codes(authority, device):
        raise ConfigError(f"no device '{device}' was enrolled{nearest(device, authority.devices())}")


def revoke_certificates(authority: Authority, device: str) -> int:
    """Revoke all certificates of a device, and withdraw its codes; returns the number of certificates."""
    with authority.lock_folder():
        enrolment_codes.withdraw_codes(authority, device)
        return authority.revoke(device) if device in authority.devices() else 0


def notify_broker(
    authority: Authority,
    device: str,
    certificates: int,
    *,
    pid: int | None = None,
    end: bool = False,
    broker: str | None = None,
) -> Revocation:
    """Let the Mosquitto of this `pid` read the list, and end the device's connection then, or with `end`.

    Raises `EdgeError` if the broker cannot be reached.
    """
    missing = eviction.copy_revocation_list(authority)
    reloaded = pid is not None and missing is None
    if pid is not None and reloaded:
        eviction.reload_broker(pid)
    if reloaded or end:
        eviction.evict(authority, device, broker or authority.settings.broker)
    return Revocation(authority, device, certificates, reloaded, reloaded or end, missing)
