"""The server's side of a standby: entries go out, and what the server says waits until they are confirmed."""

import contextlib
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from edge_client.storage.atomic_files import unlink, write_synced
from edge_client.transport.link_events import Inbox
from edge_client.transport.mqtt_client import Link
from edge_server.coordinator.replication.gate import OutputGate
from edge_server.storage.journal import Journal
from edge_server.storage.replica.source import Numbered, RunSource
from edge_server.transport.lease.keeper import LeaseKeeper
from schemas.base import Frozen
from schemas.errors import PeerError
from schemas.messages import (
    BlobRequest,
    Message,
    StandbyEntry,
    StandbyRefusal,
    StandbyReport,
    decode_message,
    encode_message,
)
from schemas.tensors.chunks import BlobRef
from schemas.topics import StandbyTopic

log = logging.getLogger(__name__)

SILENT_S = 4.0
"""A standby that has said nothing for so long is left behind."""
STUCK_S = 20.0
"""So is one that is not up to date and has fetched nothing for so long."""
NEARLY = 16
"""From so few entries behind on, the server waits for its standby."""
MOST_ANNOUNCED = 64
STATUS = "standby.json"


@dataclass(frozen=True)
class EntryMade:
    """Event: a change of the run folder is to be sent to the standby."""


class StandbyStatus(Frozen):
    """For `edge-server handover`: the standby, and whether it may take over."""

    standby: str
    origin: str
    follows: bool


@dataclass(frozen=True)
class Follower:
    """A standby as the server knows it: `heard_at` and `moved_at` are when it last spoke, and last got on."""

    standby: str
    origin: str
    series: str
    heard_at: float
    moved_at: float
    known: int = 0
    confirmed: int = 0
    named: bool = False
    leaving: bool = False


class Shipper:
    """Keeps one standby up to date; belongs to the server's thread, but for the source.

    `in_turn` runs a function where no other job changes the run folder. `refused` says why this run cannot
    be followed; empty if it can.
    """

    def __init__(
        self,
        federation: str,
        run: Path,
        journal: Journal,
        link: Link,
        lease: LeaseKeeper,
        inbox: Inbox,
        *,
        in_turn: Callable[[Callable[[], None]], None],
        refused: str = "",
    ) -> None:
        self._federation, self._run, self._journal = federation, run, journal
        self._link, self._lease, self._inbox = link, lease, inbox
        self._in_turn, self._refused = in_turn, refused
        self._source: RunSource | None = None
        self._follower: Follower | None = None
        self.gate = OutputGate(lambda: 0 if self._source is None else self._source.last)
        unlink(run / STATUS)

    @property
    def standby(self) -> str:
        """Where the standby that may take over is; empty without one."""
        return self._follower.origin if self._follower is not None and self._follower.named else ""

    def hear(self, payload: bytes, now: float) -> None:
        """Take a message of a standby; raises `PeerError` for any other."""
        message = decode_message(payload, federation=self._federation)
        match message:
            case StandbyReport():
                self._reported(message, now)
            case BlobRequest():
                self._requested(message, now)
            case _:
                raise PeerError(f"a standby does not send '{message.kind}'")

    def announce(self) -> None:
        """Send the entries of which the standby has not heard."""
        follower, source = self._follower, self._source
        if follower is None or source is None or follower.leaving:
            return
        fresh = source.after(follower.known)[:MOST_ANNOUNCED]
        for entry in fresh:
            self._send_entry(follower, entry)
        if fresh:
            self._follower = replace(follower, known=fresh[-1].number)

    def tick(self, now: float) -> None:
        """Leave a standby behind that is silent or stuck."""
        follower = self._follower
        if follower is None:
            return
        if follower.leaving:
            self._finish_leaving(follower)
            return
        behind = self._source is not None and self._source.last > follower.confirmed
        if now >= follower.heard_at + SILENT_S or (behind and now >= follower.moved_at + STUCK_S):
            log.warning("the standby on %s is left behind: nothing was heard of it", follower.origin)
            self._leave(follower)

    def close(self) -> None:
        """Stop making entries."""
        if self._source is not None:
            self._source.end()

    # --- what the standby says ---
    def _reported(self, report: StandbyReport, now: float) -> None:
        if self._refused:
            refusal = StandbyRefusal(
                federation=self._federation, standby=report.standby, detail=self._refused
            )
            self._publish(refusal)
            return
        follower = self._follower
        if follower is None:
            self._welcome(report, now)
        elif follower.leaving or report.standby != follower.standby:
            if not follower.leaving:
                # Another process: the one before has ended, or is a second standby.
                self._consider(follower, report, now)
        elif report.series == follower.series:
            self._note(follower, report, now)
        else:
            self._follower = replace(follower, heard_at=now, known=0)
            self.announce()

    def _consider(self, follower: Follower, report: StandbyReport, now: float) -> None:
        if now < follower.heard_at + SILENT_S / 2:
            detail = f"the standby on {follower.origin} follows this server already"
            self._publish(StandbyRefusal(federation=self._federation, standby=report.standby, detail=detail))
            return
        self._leave(follower)

    def _welcome(self, report: StandbyReport, now: float) -> None:
        """Begin a series for a new standby."""
        series = secrets.token_hex(8)
        self._follower = Follower(report.standby, report.origin, series, heard_at=now, moved_at=now)
        self._source = source = RunSource(self._run, self._journal, made=lambda: self._inbox.put(EntryMade()))
        log.info("a standby on %s begins to follow", report.origin)
        self._in_turn(partial(_begin, source))

    def _note(self, follower: Follower, report: StandbyReport, now: float) -> None:
        moved = report.confirmed > follower.confirmed
        follower = replace(
            follower,
            heard_at=now,
            moved_at=now if moved else follower.moved_at,
            known=report.known if report.known < follower.known else follower.known,
            confirmed=max(report.confirmed, follower.confirmed),
        )
        self._follower = follower
        if self._source is not None:
            if moved:
                self._source.taken(follower.confirmed)
            self._catch_up(follower, self._source)
        self.gate.confirm(follower.confirmed)
        self.announce()

    def _catch_up(self, follower: Follower, source: RunSource) -> None:
        """Wait for a standby that is nearly up to date: in a busy run it would always be a little behind."""
        behind = source.last - follower.confirmed
        if self._lease.mute:
            # Nobody would hear who may follow.
            return
        if follower.named or not follower.confirmed or behind > NEARLY:
            return
        self.gate.closed = True
        if source.last == follower.confirmed:
            self._name(follower)

    def _name(self, follower: Follower) -> None:
        """Nothing is said any more before the standby knows it; therefore it may take over."""
        self._follower = replace(follower, named=True)
        self._lease.name_standby(follower.standby)
        self._write_status(follower, follows=True)
        log.info("the standby on %s is up to date", follower.origin)

    def _requested(self, request: BlobRequest, now: float) -> None:
        follower, source = self._follower, self._source
        if follower is None or source is None or request.device != follower.standby:
            return
        self._follower = replace(follower, heard_at=now, moved_at=now)
        path = source.store.path(request.digest)
        with contextlib.suppress(OSError):
            ref = BlobRef(digest=request.digest, size=path.stat().st_size, chunk_bytes=source.chunk_bytes)
            self._send_chunks(ref, range(request.first, min(request.first + request.count, ref.chunks)))

    # --- leaving it behind ---
    def _leave(self, follower: Follower) -> None:
        """Take the standby's name out of the lease; only once that counts, the server goes on alone."""
        self._follower = replace(follower, leaving=True)
        if follower.named:
            self._write_status(follower, follows=False)
            self._lease.name_standby("")
        self._finish_leaving(self._follower)

    def _finish_leaving(self, follower: Follower) -> None:
        if follower.named and self._lease.named != "":
            return
        if self._source is not None:
            self._source.end()
        self._source = self._follower = None
        unlink(self._run / STATUS)
        self.gate.open()

    def _write_status(self, follower: Follower, *, follows: bool) -> None:
        status = StandbyStatus(standby=follower.standby, origin=follower.origin, follows=follows)
        write_synced(self._run / STATUS, status.model_dump_json().encode())

    # --- what goes out ---
    def _send_entry(self, follower: Follower, entry: Numbered) -> None:
        self._publish(
            StandbyEntry(
                federation=self._federation,
                standby=follower.standby,
                series=follower.series,
                number=entry.number,
                entry=entry.ref,
            )
        )
        if entry.ref.inline:
            self._send_chunks(entry.ref, range(1))

    def _send_chunks(self, ref: BlobRef, indices: range) -> None:
        assert self._source is not None
        store = self._source.store
        for index in indices:
            key = "standby", ref.digest, index
            topic = str(StandbyTopic(self._federation, "chunk"))
            self._link.send_chunk(key, topic, partial(store.read_frame, ref, index))

    def _publish(self, message: Message) -> None:
        self._link.publish(str(StandbyTopic(self._federation, "entry")), encode_message(message))


def _begin(source: RunSource) -> None:
    """Make the first entry; without room for it the run goes on, and the standby stays behind."""
    try:
        source.begin()
    except OSError as error:
        log.warning("the standby cannot be served: %s", error)
