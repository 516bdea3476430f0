"""Revoking a device: its certificates and codes, the broker's list, its open connection."""

import os
import queue
import signal
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding

from edge_client.security.identity import certificates, private_files
from edge_client.transport import broker_link, mqtt_client
from edge_server.security.identity import enrolment_codes, mosquitto
from edge_server.security.identity.authority import Authority
from edge_server.security.identity.certificates import client_certificate
from schemas.errors import ConfigError, EdgeError, format_count, nearest
from schemas.topics import Channel, DeviceTopic

# Mosquitto checks certificates only when a connection is made, and has no command to end one, but it ends
# one whose client identifier is taken over, and the identifier is the certificate's name. So the authority
# briefly connects under the device's name, with a short-lived certificate, and clears the device's retained
# birth; when the device reconnects, it is refused.

PASSING_S = 300.0
DEADLINE_S = 15.0


def copy_revocation_list(authority: Authority) -> str | None:
    """Copy the revocation list to the broker's folder, if it has one; returns why that failed, or None."""
    if authority.settings.broker_folder is None:
        return None
    there = Path(authority.settings.broker_folder) / mosquitto.REVOKED
    try:
        # Overwrite in place: the file belongs to Mosquitto's user.
        with there.open("r+b") as file:
            file.write((authority.broker / mosquitto.REVOKED).read_bytes())
            file.truncate()
    except OSError as error:
        return f"{there}: {error.strerror}"
    return None


def reload_broker(pid: int) -> None:
    """Make Mosquitto reload its revocation list; raises `ConfigError` if there is no such process."""
    try:
        os.kill(pid, signal.SIGHUP)
    except (ProcessLookupError, PermissionError, OverflowError) as error:
        raise ConfigError(f"process {pid} cannot be sent SIGHUP: {error}") from error


def read_pid(path: Path) -> int:
    """The number in a pid file; raises `ConfigError`."""
    try:
        return int(path.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} is not a pid file: {error}") from error


def evict(authority: Authority, device: str, broker: str) -> None:
    """End the device's connection, if it has one; raises `EdgeError` if the broker cannot be reached."""
    key, inbox = certificates.new_key(), broker_link.Inbox()
    passing = client_certificate(
        authority.root, device, key.public_key(), lifetime_s=PASSING_S, now=authority.clock()
    )
    with tempfile.TemporaryDirectory(prefix="edge-evict-") as name:
        folder = Path(name)
        files = broker_link.TlsFiles(folder / "ca", folder / "certificate", folder / "key")
        private_files.write_private(folder / "ca", authority.ca_pem)
        private_files.write_private(folder / "certificate", passing.public_bytes(Encoding.PEM))
        private_files.write_private(folder / "key", certificates.key_pem(key))
        link = mqtt_client.Link(broker_link.parse_address(broker, files), inbox, client_id=device, filters=())
        link.open()
        try:
            _await_up(inbox)
            # Its last will has been published by now; a retained birth would make it look connected.
            birth = DeviceTopic(authority.settings.federation, device, Channel.BIRTH)
            link.publish(str(birth), b"", retain=True)
        finally:
            link.close()


def _await_up(inbox: broker_link.Inbox) -> None:
    until, last = time.monotonic() + DEADLINE_S, ""
    while (left := until - time.monotonic()) > 0:
        try:
            event = inbox.get(timeout=left)
        except queue.Empty:
            break
        if isinstance(event, broker_link.LinkUp):
            return
        last = str(getattr(event, "reason", last))
    raise EdgeError(f"the broker cannot be reached, so the device may still be connected: {last}")


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
    missing = copy_revocation_list(authority)
    reloaded = pid is not None and missing is None
    if pid is not None and reloaded:
        reload_broker(pid)
    if reloaded or end:
        evict(authority, device, broker or authority.settings.broker)
    return Revocation(authority, device, certificates, reloaded, reloaded or end, missing)
