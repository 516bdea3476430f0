"""Whether this server may write and send: only while it holds the federation's lease."""

import contextlib
import logging
import queue
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from edge_client.transport.broker_link import BrokerAddress, Inbox, TlsFiles
from edge_client.transport.mqtt_client import Link
from edge_server.coordinator.run_start import read_run_and_epoch
from edge_server.coordinator.standby.standby_status import STATUS
from edge_server.rounds.events import StopRequested
from edge_server.storage.journal import Journal
from edge_server.storage.run_folder import RunFolder
from edge_server.transport.lease import holder, phases
from edge_server.transport.lease.keeper import LeaseKeeper
from schemas.errors import EdgeError
from schemas.messages import Lease

IDENTITIES = ("lease", "standby")
"""Folders of the authority, each with a certificate for one machine's lease connection."""


@contextlib.contextmanager
def lease_of(
    address: BrokerAddress, federation: str, out: Path, held: LeaseKeeper | None = None
) -> Iterator[LeaseKeeper | None]:
    """Look for the lease while the block begins, unless it is `held`, and give it back at its end.

    None where the broker knows clients by certificates and this server has none for a second connection.
    """
    if held is None:
        where = lease_address(address)
        if where is None:
            log.warning(
                "no certificate for the lease: two servers of one name would not notice each other, and no "
                "standby can follow; the next `edge-server enroll` makes AUTHORITY/lease"
            )
            yield None
            return
        (run, epoch), had_standby = read_run_and_epoch(out), (out / STATUS).exists()
        held = LeaseKeeper(
            where, federation, holder.this_process(out), first_epoch=epoch, run=run, had_standby=had_standby
        ).open()
    try:
        yield held
    finally:
        held.close(over=RunFolder(out).has_ended)


def lease_address(address: BrokerAddress) -> BrokerAddress | None:
    """The broker's address with the certificate of a lease connection; None if there is none.

    It lies next to the folder of the server's own certificate, where `edge-server enroll` puts it, or in that
    folder. One certificate cannot serve two connections: the broker takes its name for the client's.
    """
    if address.tls is None or address.tls.certificate is None:
        return address
    own = address.tls.certificate.absolute().parent
    for folder in (place / name for name in IDENTITIES for place in (own.parent, own)):
        name = folder.name
        files = TlsFiles(folder / "ca.pem", folder / f"{name}.pem", folder / f"{name}.key")
        if all(file is not None and file.is_file() for file in (files.ca, files.certificate, files.key)):
            return replace(address, tls=files)
    return None


class Suspended(EdgeError):
    """The server has stopped in the middle of a run, on request or `failed`; started again, it resumes."""

    def __init__(self, message: str, *, failed: bool = False) -> None:
        super().__init__(message)
        self.failed = failed


class Deposed(EdgeError):
    """Another server has taken over: this one must not write any more."""


log = logging.getLogger(__name__)

PAUSED_S = 0.05  # Seconds between two looks whether the server may write


class WritingRight:
    """Opens the server's connection while it holds the lease, and pauses it while it does not.

    It may be `linked` already. Without a `lease` the connection is always open. `epoch` is None in the epoch
    in which the run began.
    """

    def __init__(
        self, lease: LeaseKeeper | None, link: Link, journal: Journal, run: str, *, linked: bool = False
    ) -> None:
        self._lease, self._link, self._journal = lease, link, journal
        self._linked, self._noted = linked, False
        self.trouble = ""
        self.epoch: int | None = None
        if lease is not None:
            lease.serve(run)

    @property
    def held_epoch(self) -> int | None:
        """The epoch of the lease that is held now; None without one."""
        if self._lease is None or self._lease.mute or not self._lease.holds():
            return None
        return self._lease.state.epoch

    def exercise(self) -> bool:
        """Connect if the server may write now, and say whether; raises `Deposed` once another one serves."""
        if self._lease is None:
            self._connect()
            return True
        phase = self._lease.state.phase
        if isinstance(phase, phases.Taken | phases.Lost):
            self._end(self._lease, phase.by)
        if not self._lease.holds():
            self._pause(self._lease)
            return False
        if not self._noted and not self._lease.mute:
            self._noted = True
            epoch = self._lease.state.epoch
            first = self._journal.write_epoch(epoch, holder.in_words(self._lease.state.me))
            self.epoch = epoch if epoch > first else None
        self._connect()
        return True

    def _connect(self) -> None:
        if not self._linked:
            self._linked, self.trouble = True, ""
            self._link.open()

    def _pause(self, lease: LeaseKeeper) -> None:
        self.trouble = lease.trouble or "waiting for the lease of the federation"
        if self._linked:
            self._linked = False
            self._link.pause()
            log.info("no renewal of the lease was heard in time: nothing is sent until one is")

    def _end(self, lease: LeaseKeeper, by: Lease) -> None:
        """Stop at once: nothing that is queued may be sent."""
        if self._linked:
            self._linked = False
            self._link.pause()
        lease.check()
        who = f"{holder.in_words(by.holder)}, epoch {by.epoch}"
        raise Deposed(f"another server serves the federation '{lease.state.federation}' now: {who}")


class HeldInbox:
    """The server's inbox as its loop sees it: without the right to write, only the user's wish to end.

    Everything else waits in order, after the `early` events.
    """

    def __init__(self, inbox: Inbox, right: WritingRight, early: Iterable[Any]) -> None:
        self._inbox, self._right, self.waiting = inbox, right, deque(early)

    def get(self, *, timeout: float | None) -> Any:
        """The next event; raises `queue.Empty` if there is none that may be handled now."""
        held = self._right.exercise()
        if held and self.waiting:
            event = self.waiting.popleft()
        else:
            event = self._inbox.get(timeout=timeout if held else PAUSED_S)
        # The process may have been stopped since.
        if isinstance(event, StopRequested | Suspended) or (held and self._right.exercise()):
            return event
        (self.waiting.appendleft if held else self.waiting.append)(event)
        raise queue.Empty
