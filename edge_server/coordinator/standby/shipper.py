"""The server's side of a standby: entries go out, and what the server says waits until they are confirmed."""

import contextlib
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from edge_client.storage.atomic_files import unlink
from edge_client.storage.blob_store import BlobStore
from edge_client.transport.broker_link import Inbox
from edge_client.transport.mqtt_client import Link
from edge_server.coordinator.standby.known_standby import KnownStandby, OutputGate
from edge_server.coordinator.standby.replica_source import Numbered, RunSource
from edge_server.coordinator.standby.standby_status import STATUS
from edge_server.storage.journal import Journal
from edge_server.transport.lease.keeper import LeaseKeeper
from schemas import messages
from schemas.errors import PeerError
from schemas.tensors.chunks import BlobRef
from schemas.topics import standby_topic

log = logging.getLogger(__name__)


class StandbyOutput:
    """Publishes on the standby's topics of one federation."""

    def __init__(self, federation: str, link: Link) -> None:
        self.federation, self._link = federation, link

    def refuse(self, standby: str, detail: str) -> None:
        """Tell a standby why it cannot follow."""
        self._publish(messages.StandbyRefusal(federation=self.federation, standby=standby, detail=detail))

    def send_entry(self, to: KnownStandby, entry: Numbered, store: BlobStore) -> None:
        """Announce an entry; the chunk of a small one follows unasked."""
        self._publish(
            messages.StandbyEntry(
                federation=self.federation,
                standby=to.standby,
                series=to.series,
                number=entry.number,
                entry=entry.ref,
            )
        )
        if entry.ref.inline:
            self._send_chunks(entry.ref, range(1), store)

    def answer(self, request: messages.BlobRequest, source: RunSource) -> None:
        """Send the requested chunks of a blob; none of a blob that is no longer there."""
        with contextlib.suppress(OSError):
            size = source.store.blob_path(request.digest).stat().st_size
            ref = BlobRef(digest=request.digest, size=size, chunk_bytes=source.chunk_bytes)
            last = min(request.first + request.count, ref.chunks)
            self._send_chunks(ref, range(request.first, last), source.store)

    def _send_chunks(self, ref: BlobRef, indices: range, store: BlobStore) -> None:
        topic = standby_topic(self.federation, "chunk")
        for index in indices:
            key = "standby", ref.digest, index
            self._link.send_chunk(key, topic, partial(store.read_frame, ref, index))

    def _publish(self, message: messages.Message) -> None:
        self._link.publish(standby_topic(self.federation, "entry"), messages.encode_message(message))


MAX_ANNOUNCED = 64


@dataclass(frozen=True)
class EntryMade:
    """Event: a change of the run folder is to be sent to the standby."""


@dataclass(frozen=True)
class FollowedRun:
    """The run that a standby may follow.

    `in_turn` runs a function where no other job changes the run folder. `refused` says why this run cannot
    be followed; empty if it can.
    """

    folder: Path
    journal: Journal
    in_turn: Callable[[Callable[[], None]], None]
    refused: str = ""


class Shipper:
    """Keeps one standby up to date; belongs to the server's thread, but for the source.

    There is a source of entries as long as there is a standby.
    """

    def __init__(self, run: FollowedRun, output: StandbyOutput, lease: LeaseKeeper, inbox: Inbox) -> None:
        self._run, self._output, self._lease, self._inbox = run, output, lease, inbox
        self._source: RunSource | None = None
        self._standby: KnownStandby | None = None
        self._others: dict[str, float] = {}
        self.gate = OutputGate(lambda: 0 if self._source is None else self._source.last)
        unlink(run.folder / STATUS)

    @property
    def standby(self) -> str:
        """Where the standby that may take over is; empty without one."""
        return self._standby.origin if self._standby is not None and self._standby.named else ""

    def hear(self, payload: bytes, now: float) -> None:
        """Take a message of a standby; raises `PeerError` for any other."""
        message = messages.decode_message(payload, federation=self._output.federation)
        match message:
            case messages.StandbyReport():
                self._on_report(message, now)
            case messages.BlobRequest():
                self._on_request(message, now)
            case _:
                raise PeerError(f"a standby does not send '{message.kind}'")

    def announce(self) -> None:
        """Send the entries of which the standby has not heard."""
        standby, source = self._standby, self._source
        if standby is None or source is None or standby.leaving:
            return
        fresh = source.after(standby.known)[:MAX_ANNOUNCED]
        for entry in fresh:
            self._output.send_entry(standby, entry, source.store)
        if fresh:
            self._standby = replace(standby, known=fresh[-1].number)

    def tick(self, now: float) -> None:
        """Leave a standby behind that is silent or stuck."""
        standby, source = self._standby, self._source
        if standby is None or source is None:
            return
        if standby.leaving:
            self._finish_leaving(standby)
        elif standby.is_lost(source.last, now):
            log.warning("the standby on %s is left behind: nothing was heard of it", standby.origin)
            self._leave(standby)

    def close(self) -> None:
        """Stop making entries."""
        if self._source is not None:
            self._source.end()

    # --- what the standby says ---
    def _on_report(self, report: messages.StandbyReport, now: float) -> None:
        standby, source = self._standby, self._source
        if self._run.refused:
            self._output.refuse(report.standby, self._run.refused)
        elif standby is None or source is None:
            self._welcome(report, now)
        elif standby.leaving:
            return
        elif report.standby != standby.standby:
            self._consider(report.standby, standby, now)
        elif report.series != standby.series:
            self._standby = standby.begun_again(now)
            self.announce()
        else:
            self._note(report, standby, source, now)

    def _consider(self, other: str, standby: KnownStandby, now: float) -> None:
        """Another process reports: the one before has ended, or this is a second standby.

        It is one if the one before is heard after it.
        """
        since = self._others.setdefault(other, now)
        if standby.is_replaceable(now):
            self._leave(standby)
        elif standby.heard_at > since:
            del self._others[other]
            self._output.refuse(other, f"the standby on {standby.origin} follows this server already")

    def _welcome(self, report: messages.StandbyReport, now: float) -> None:
        """Begin a series for a new standby."""
        self._others.clear()
        series = secrets.token_hex(8)
        self._standby = KnownStandby(report.standby, report.origin, series, heard_at=now, moved_at=now)
        self._source = source = RunSource(
            self._run.folder, self._run.journal, made=lambda: self._inbox.put(EntryMade())
        )
        log.info("a standby on %s begins to follow", report.origin)
        self._run.in_turn(partial(_begin, source))

    def _note(
        self, report: messages.StandbyReport, before: KnownStandby, source: RunSource, now: float
    ) -> None:
        """Take a report on this series: the confirmed entries need not be kept any more."""
        self._standby = standby = before.with_report(report, now)
        if standby.confirmed > before.confirmed:
            source.forget_taken(standby.confirmed)
        self._catch_up(standby, source)
        self.gate.confirm(standby.confirmed)
        self.announce()

    def _catch_up(self, standby: KnownStandby, source: RunSource) -> None:
        """Wait for a standby that is nearly up to date: in a busy run it would always be a little behind."""
        # While the lease is mute, nobody would hear who may follow.
        if self._lease.mute or not standby.catches_up(source.last):
            return
        self.gate.closed = True
        if source.last == standby.confirmed:
            self._name(standby)

    def _name(self, standby: KnownStandby) -> None:
        """Nothing is said any more before the standby knows it; therefore it may take over."""
        self._standby = replace(standby, named=True)
        self._lease.name_standby(standby.standby)
        standby.status(follows=True).write(self._run.folder)
        log.info("the standby on %s is up to date", standby.origin)

    def _on_request(self, request: messages.BlobRequest, now: float) -> None:
        standby, source = self._standby, self._source
        if standby is None or source is None or request.device != standby.standby:
            return
        self._standby = standby.fetching(now)
        self._output.answer(request, source)

    # --- leaving it behind ---
    def _leave(self, standby: KnownStandby) -> None:
        """Take the standby's name out of the lease; only once that counts, the server goes on alone."""
        self._standby = leaving = replace(standby, leaving=True)
        if standby.named:
            standby.status(follows=False).write(self._run.folder)
            self._lease.name_standby("")
        self._finish_leaving(leaving)

    def _finish_leaving(self, standby: KnownStandby) -> None:
        if standby.named and self._lease.named_standby != "":
            return
        if self._source is not None:
            self._source.end()
        self._source = self._standby = None
        unlink(self._run.folder / STATUS)
        self.gate.open()


def _begin(source: RunSource) -> None:
    """Make the first entry; without room for it the run goes on, and the standby stays behind."""
    try:
        source.begin()
    except OSError as error:
        log.warning("the standby cannot be served: %s", error)
