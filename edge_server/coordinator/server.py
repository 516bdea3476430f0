"""The server's edge to the outside world: it carries out what the federation's state machine decides.

One thread owns everything here; paho and the coordinator's thread only put events in the inbox.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from edge_client.system.logging.context import about
from edge_client.system.watchdog import watchdog_of
from edge_client.transport.broker_address import BrokerAddress
from edge_client.transport.chunk_transfer import WriteChunk
from edge_client.transport.echo_test import Echo
from edge_client.transport.mqtt_client import Arrived, Confirmed, Inbox, Link, LinkDown, LinkUp
from edge_server.config.config import Config
from edge_server.coordinator.blob_repair import open_tasks
from edge_server.coordinator.coordinator import Coordinator
from edge_server.coordinator.jobs import ChecksDone, Collected, JobDone, JobFailed, Jobs
from edge_server.coordinator.publisher import Outgoing
from edge_server.coordinator.receiver_replies import bytes_of, check_able, chunk_of
from edge_server.coordinator.round_record import RoundFigures
from edge_server.coordinator.round_rules import make_rules
from edge_server.observability.counters import RunCounters
from edge_server.observability.durations import PhaseClock
from edge_server.observability.snapshot import Snapshot, Watcher
from edge_server.observability.views import make_snapshot, make_summary, make_workload
from edge_server.observability.workload import Workload
from edge_server.rounds import machine as rounds
from edge_server.rounds.event_entry import EventKind
from edge_server.rounds.events import (
    Announce,
    BlobsLost,
    CheckUpdate,
    ChunkReceived,
    CloseRound,
    Command,
    EndRun,
    Event,
    MessageReceived,
    Misbehaved,
    Note,
    NotInObjectStore,
    PlanRound,
    Publish,
    RecordDelivery,
    RecordStrike,
    RepairBlob,
    RollBack,
    Send,
    SendChunks,
    ServerFailed,
    Started,
    StopRequested,
    Tick,
    WriteUpdateChunk,
)
from edge_server.rounds.machine import Federation
from edge_server.rounds.newcomers import Newcomers
from edge_server.rounds.rate_limit import RateLimit
from edge_server.rounds.state import Phase, is_over
from edge_server.storage.disk_errors import disk_has_failed
from edge_server.storage.event_list.notes import round_closed, run_ended
from edge_server.storage.records import Summary
from edge_server.storage.recovery import Recovered
from edge_server.transport.receivers.messages import Misfit, Placed, ReceiverMessage
from edge_server.transport.receivers.pool import FromReceiver, ReceiverLost, ReceiverPool
from schemas.errors import EdgeError, PeerError
from schemas.messages import (
    Death,
    Delivery,
    FromDevice,
    Message,
    Refusal,
    Task,
    Telemetry,
    TrainTask,
    Update,
    decode_message,
)
from schemas.tensors.blobs import decode_chunk
from schemas.tensors.chunks import CHUNK_SIZES
from schemas.topics import Channel, DeviceTopic, echo_topic, parse_topic, server_filters
from schemas.values import Reason

log = logging.getLogger(__name__)

TICK_S = 0.25
LONGEST_DELAY_S = 2.0
"""There is one server: it may ask for the broker often."""
TOLD_STRANGERS, WINDOW_S = 500, 10.0
"""So many devices that are not known are told in so many seconds what was wrong with their messages."""
SHOWN_SHARE = 50
"""A look at the run, of which there are four a second, may take a fiftieth of the server's time."""


class Suspended(EdgeError):
    """The server has gone down in mid-run, told to or `failed`; started again, it goes on."""

    def __init__(self, message: str, *, failed: bool = False) -> None:
        super().__init__(message)
        self.failed = failed


class Server:
    """Runs one federation to its end, from its beginning or from where an earlier process left it."""

    def __init__(
        self,
        config: Config,
        run: str,
        address: BrokerAddress,
        coordinator: Coordinator,
        watcher: Watcher,
        recovered: Recovered | None = None,
    ) -> None:
        self._config, self._address = config, address
        self._coordinator, self._watcher = coordinator, watcher
        self.inbox: Inbox = queue.SimpleQueue()
        name = config.federation.name
        echo = echo_topic(name, "server")
        self._link = Link(
            address,
            self.inbox,
            client_id=f"{name}-server",
            filters=(*server_filters(name, blobs=not config.federation.receivers), echo),
            longest_delay_s=LONGEST_DELAY_S,
        )
        self._link.fit(CHUNK_SIZES[-1])
        self._echo = Echo(echo, lambda payload: self._link.echo(echo, payload))
        self._planned: list[PlanRound] = []
        self._receivers = ReceiverPool(
            config.federation.receivers, name, address, coordinator.storage.folder.blobs, self.inbox
        )
        self._jobs = Jobs(coordinator, self.inbox)
        self._federation = _doubting(
            Federation(name, run, make_rules(config), classes=coordinator.context.classes)
        )
        self._tally, self._phases = RunCounters(known=self._knows), PhaseClock()
        self._strangers = RateLimit(TOLD_STRANGERS, WINDOW_S)
        self._partial: set[str] = set()
        self._mending: set[str] = set()
        self._outgoing = Outgoing(
            name,
            self._link,
            coordinator.storage.store,
            self._tally,
            lambda digest: self.inbox.put(RepairBlob(digest)),
        )
        if recovered is not None:
            self._take_over(recovered)
        self._began = time.monotonic()
        about(federation=name, run=run)
        self._watchdog = watchdog_of(os.environ)
        self._next_tick = self._next_look = 0.0
        self._no_link = f"connecting to {address}"
        self._fits: int | None = None
        self._end: EndRun | None = None

    def run(self) -> Summary:
        """Serve until the run is over; what breaks the server ends it as failed, with the reason.

        Raises `Suspended` where the run is not over and may go on another time.
        """
        self._receivers.open()
        self._link.open()
        self._step(Started())
        self._watchdog.ready()
        try:
            while self._end is None:
                self._turn()
        except Exception as error:
            if disk_has_failed(error):
                raise _suspended(error) from error
            raise
        finally:
            self._watchdog.stopping()
            self._receivers.close()
            self._link.close()
            self._jobs.end(finished=self._end is not None and self._end.outcome == "finished")
            if self._end is None:
                self._list(Note("server goes down", detail="the run is not over", kind=EventKind.ROUND))
                self._coordinator.suspend()
        return self._finish(self._end)

    def warn(self, what: str, detail: str) -> None:
        """Let people know of something beside the run; may be called from another thread."""
        self.inbox.put(Note(what, detail=detail))

    def stop(self) -> None:
        """End the run soon; may be called from a signal handler or another thread."""
        self.inbox.put(StopRequested())

    def suspend(self) -> None:
        """Go down soon and leave the run as it is; may be called from a signal handler."""
        self.inbox.put(Suspended("the server was told to go down"))

    def _take_over(self, recovered: Recovered) -> None:
        self._federation = _doubting(replace(recovered.federation, classes=self._coordinator.context.classes))
        self._tally.restore(recovered.traffic, recovered.history)
        for delivery in recovered.deliveries:
            self._tally.delivered(delivery)
        self._partial = self._coordinator.storage.store.parts()
        self._federation = self._coordinator.repair.repair_all(self._federation)
        tasks = [participant.assignment.task for participant in self._federation.at_work]
        self._jobs.publish([ref for task in tasks for ref in task.blobs.values()])
        if self._federation.phase is Phase.DELIVERING and is_over(self._federation):
            self._jobs.export_tiers()
        detail = f"with round {self._federation.round}, which was cut off"
        self._note(Note("going on", detail=detail, kind=EventKind.ROUND))

    def _mend(self, digest: str) -> None:
        """Look at a blob again that somebody could not use, unless that is under way."""
        if digest not in self._mending:
            self._mending.add(digest)
            self._jobs.mend(digest, open_tasks(self._federation))

    def _turn(self) -> None:
        now = time.monotonic()
        if now >= self._next_tick:
            self._next_tick = now + TICK_S
            self._step(Tick())
            self._echo.tick(now)
            self._fit()
            self._watchdog.alive(now)
            self._show(now)
        try:
            event = self.inbox.get(timeout=max(0.0, self._next_tick - now))
        except queue.Empty:
            return
        try:
            self._handle(event)
        except PeerError as error:
            self._tally.refused(None, error.reason)
            self._list(Note("message ignored", None, Reason(error.reason), str(error)))
            log.warning("ignored (%s): %s", error.reason, error, extra={"reason": error.reason})

    def _show(self, now: float) -> None:
        if now >= self._next_look:
            self._watcher.show(self._snapshot())
            self._next_look = now + SHOWN_SHARE * (time.monotonic() - now)

    def _handle(self, event: Any) -> None:
        match event:
            case Arrived(topic, payload):
                self._arrived(topic, payload)
            case LinkUp():
                log.info("connected to %s", self._address)
                self._list(Note("connected to the broker", kind=EventKind.JOIN))
                self._no_link = ""
                self._link.handle(event)
                self._echo.connected(event, time.monotonic())
                self._outgoing.announce_again()
                self._fit()
            case LinkDown(reason):
                self._no_link = f"no connection to {self._address}: {reason}; trying again"
                log.info("%s", self._no_link)
                self._list(Note("no connection to the broker", detail=reason, kind=EventKind.LOSS))
                self._echo.cut()
                self._link.handle(event)
            case Confirmed():
                self._link.handle(event)
            case FromReceiver(told):
                self._received(told)
            case ReceiverLost():
                self._receivers.replace(event)
            case JobDone(done, record):
                if record is not None:
                    self._tally.closed(record)
                    self._note(round_closed(record))
                self._step(done)
                if isinstance(done, BlobsLost):
                    self._mending.clear()
            case RepairBlob(digest):
                self._mend(digest)
            case Collected(command, True):
                self._tally.indirect.stored[command.device] += command.update.blob.size
                self._check(command)
            case Collected(CheckUpdate(device, update), False, have):
                self._step(NotInObjectStore(device, update.blob.digest, have))
            case ChecksDone(events):
                for checked in events:
                    self._step(checked)
            case JobFailed(error):
                if disk_has_failed(error):
                    raise error
                log.error("the run cannot go on", exc_info=error)
                self._step(ServerFailed(f"{type(error).__name__}: {error}"))
            case Note():
                self._do(event)
            case StopRequested():
                self._step(event)
            case Suspended():
                raise event

    def _fit(self) -> None:
        """Cut blobs and messages so that the broker passes them on; what was to be planned waits for that."""
        found = self._echo.found
        if found is None:
            return
        if found != self._fits:
            self._fits = found
            self._link.fit(found)
            self._say_size(found)
        waiting, self._planned = self._planned, []
        for command in waiting:
            self._jobs.plan(command, found)

    def _say_size(self, chunk_bytes: int) -> None:
        size = f"{chunk_bytes // 1024} kB"
        if chunk_bytes == CHUNK_SIZES[0]:
            log.info("blobs travel in chunks of %s%s", size, "" if self._echo.measured else ", not tried")
        else:
            detail = (
                f"the broker passes on no larger packets; models travel in chunks of {size}, which is slower"
            )
            self._do(Note("small packets:", detail=detail))

    # --- what comes in ---
    def _arrived(self, topic: str, payload: bytes) -> None:
        if self._echo.hears(topic, payload, time.monotonic()):
            self._fit()
            return
        where = parse_topic(topic)
        if not isinstance(where, DeviceTopic):
            raise PeerError(f"nothing is expected on {topic}")
        if where.channel is Channel.UP_ROLLOUT:
            return  # said to a rollout, which has a connection of its own
        with self._hearing(where.device, len(payload)):
            if where.channel is Channel.UP_BLOB:
                chunk = decode_chunk(payload)
                self._tally.heard(where.device)
                self._step(ChunkReceived(where.device, chunk))
            elif payload:
                self._take(where, payload)

    @contextlib.contextmanager
    def _hearing(self, device: str, size: int) -> Iterator[None]:
        """Count what came from a device, and tell it what is wrong with that."""
        self._tally.received(device, size)
        try:
            yield
        except PeerError as error:
            self._refuse(device, error)

    def _take(self, where: DeviceTopic, payload: bytes) -> None:
        message = decode_message(payload, federation=self._config.federation.name)
        if not isinstance(message, FromDevice):
            raise PeerError(f"a device does not send '{message.kind}'", reason=Reason.UNKNOWN_KIND)
        if message.device != where.device:
            detail = f"'{message.kind}' of {message.device} on the topic of {where.device}"
            raise PeerError(detail, reason=Reason.WRONG_SENDER)
        if not isinstance(message, Death):
            # Which the broker says in its place.
            self._tally.heard(message.device)
        if isinstance(message, Telemetry):
            self._tally.reported(message)
        if isinstance(message, Refusal) and not self._federation.fleet.doubts(message.device):
            about_it = {"device": message.device, "reason": message.reason}
            log.info("%s refuses (%s): %s", *about_it.values(), message.detail, extra=about_it)
        self._step(MessageReceived(message, have=self._have(message)))
        if isinstance(message, Update | Delivery):
            self._count_claim(message)
        if isinstance(message, Update):
            self._expect(message)

    def _count_claim(self, result: Update | Delivery) -> None:
        """What a device says that reached it for its task, beside what it was sent alone."""
        participant = self._federation.participants.get(result.device)
        if participant is None or not participant.is_meant(result):
            return
        task = participant.assignment.task
        self._tally.indirect.claimed(
            result.device,
            result.attempt,
            heard=result.heard_bytes,
            fetched=result.fetched_bytes,
            most_fetched=0 if task.depot is None else sum(ref.size for ref in task.blobs.values()),
        )

    def _expect(self, claim: Update) -> None:
        """A claim that was taken: its chunks have a place, whoever gets them."""
        participant = self._federation.participants.get(claim.device)
        if participant is not None and participant.update == claim and not participant.final:
            self._receivers.expect(claim.device, claim.blob)

    def _received(self, told: ReceiverMessage) -> None:
        """What a receiver says of what came to it."""
        check_able(told)
        if isinstance(told, Placed | Misfit):
            with self._hearing(told.device, bytes_of(told)):
                chunk = chunk_of(told)
                self._tally.heard(told.device)
                self._step(chunk)

    def _have(self, message: FromDevice) -> int:
        """The chunks of a claimed update that came before the server was restarted."""
        if not isinstance(message, Update) or message.blob.digest not in self._partial:
            return 0
        self._partial.discard(message.blob.digest)
        return self._coordinator.storage.store.present(message.blob)

    def _refuse(self, device: str, error: PeerError) -> None:
        """Log and count what was wrong, and tell the device why."""
        self._tally.refused(device, error.reason)
        self._list(Note("message ignored", device, Reason(error.reason), str(error)))
        about_it = {"device": device, "reason": error.reason}
        log.warning("%s: ignored (%s): %s", *about_it.values(), error, extra=about_it)
        refusal = Refusal(
            federation=self._config.federation.name,
            device=device,
            reason=Reason(error.reason),
            detail=str(error)[:500],
        )
        self._tell(device, refusal)
        self._step(Misbehaved(device, refusal.reason))

    def _knows(self, device: str) -> bool:
        return device in self._federation.fleet.devices

    def _tell(self, device: str, message: Message) -> None:
        """Send it; of what is not taken from strangers, who may be anyone's inventions, only some is said."""
        made_up = isinstance(message, Refusal) and not self._knows(device)
        if not made_up or self._strangers.allows(time.monotonic()):
            self._outgoing.send(device, message)

    # --- what the machine decides ---
    def _step(self, event: Event) -> None:
        now = time.monotonic()
        self._federation, commands = rounds.step(self._federation, event, now)
        self._phases.at(self._federation.phase, now)
        about(round=self._federation.round)
        for command in commands:
            self._do(command)

    def _do(self, command: Command) -> None:
        match command:
            case Send(device, message, to_sign):
                signed = self._coordinator.signer.sign_message(message, to_sign)
                self._tell(device, self._addressed(device, signed))
            case Announce(message):
                self._outgoing.announce(message, self._federation.fleet.present())
            case SendChunks():
                self._outgoing.send_chunks(command)
            case Publish():
                self._outgoing.publish(command)
            case WriteUpdateChunk() if len(self._receivers):
                pass
            case WriteUpdateChunk(_, WriteChunk(ref, index, data, crc)):
                self._coordinator.storage.store.write_chunk(ref, index, data, crc)
            case PlanRound() | CheckUpdate() | CloseRound():
                self._begin_job(command)
            case RepairBlob(digest):
                self._mend(digest)
            case RollBack():
                self._jobs.roll_back(command)
            case Note():
                self._note(command)
            case RecordStrike(device, number, why):
                self._coordinator.strike(device, number, why)
            case RecordDelivery(delivery):
                self._coordinator.storage.journal.delivered(delivery)
                self._tally.delivered(delivery)
            case EndRun():
                self._end = command
                if command.outcome == "finished":
                    self._jobs.export_tiers()

    def _note(self, note: Note) -> None:
        """Log, count and list it."""
        level = logging.INFO if note.routine else logging.WARNING
        about_it = {"what": note.what, "device": note.device, "reason": note.reason}
        log.log(level, "%s", self._tally.noted(note), extra=about_it)
        self._list(note)

    def _list(self, note: Note) -> None:
        self._coordinator.storage.events.record(note.event(time.time()))

    # --- the jobs ---
    def _begin_job(self, command: PlanRound | CheckUpdate | CloseRound) -> None:
        match command:
            case PlanRound():
                # In buffered mode work goes on: there a round's figures run from closing to closing.
                if command.wanted is None or command.attempt == 1:
                    self._tally.begin_round()
                self._planned.append(command)
                self._fit()
                if command.deliver and is_over(self._federation):
                    self._jobs.export_tiers()
            case CheckUpdate(_, update) if update.deposited:
                self._jobs.collect(command)
            case CheckUpdate():
                self._check(command)
            case CloseRound():
                uplink, downlink, seconds = self._tally.round_figures()
                self._tally.begin_round()
                traffic = self._tally.traffic()
                self._jobs.close_round(command, RoundFigures(uplink, downlink, seconds, traffic=traffic))

    def _check(self, command: CheckUpdate) -> None:
        """Let an update be looked at, if its device still has a part in the round."""
        participant = self._federation.participants.get(command.device)
        task = participant.assignment.task if participant is not None else None
        if isinstance(task, TrainTask):
            self._jobs.check(command, task)

    def _addressed(self, device: str, message: Message) -> Message:
        """A task with fresh addresses in the store, where there is one."""
        depot, participant = self._coordinator.storage.object_store, self._federation.participants.get(device)
        if depot is None or participant is None or not isinstance(message, Task):
            return message
        return depot.addressed(message, device, participant.assignment.max_bytes)

    # --- the end ---
    def _snapshot(self, summary: Summary | None = None) -> Snapshot:
        return make_snapshot(
            self._federation,
            self._tally,
            tier=self._coordinator.tiering.tier,
            ratios=self._config.tiers.levels,
            now=time.monotonic(),
            began=self._began,
            no_link=self._no_link,
            tested_on=self._coordinator.context.testing.tested_on,
            load=self._workload(),
            summary=summary,
        )

    def _workload(self) -> Workload:
        return make_workload(
            self._federation,
            self._tally,
            self._config,
            phases=self._phases,
            work=self._coordinator.context.durations,
            inbox=self.inbox.qsize(),
            jobs=self._jobs.open,
            outgoing=self._link.outgoing,
            unheard=self._link.dropped,
        )

    def _finish(self, end: EndRun) -> Summary:
        exported: Mapping[int, Path] = {}
        try:
            exported = self._jobs.exported()
        except (EdgeError, OSError) as error:
            end = EndRun("failed", f"the tiers' models: {error}")
        self._list(run_ended(end))
        summary = make_summary(
            self._federation,
            self._tally,
            end,
            config=self._config,
            tier=self._coordinator.tiering.tier,
            parameters=self._coordinator.model.network.parameters,
            onnx={tier: f"onnx/{path.name}" for tier, path in exported.items()},
            duration_s=time.monotonic() - self._began,
            started_from=self._coordinator.model.started_from,
        )
        self._coordinator.finish(summary)
        self._watcher.show(self._snapshot(summary))
        return summary


def _doubting(federation: Federation) -> Federation:
    """A broker may let anyone in: whoever is new must answer before it is believed to be there."""
    fleet = replace(federation.fleet, newcomers=Newcomers(secrets.token_hex(16)))
    return replace(federation, fleet=fleet)


def _suspended(error: BaseException) -> Suspended:
    return Suspended(f"the run is suspended, for the disk takes no more: {error}", failed=True)
