"""The server's edge to the outside world: it carries out what the federation's state machine decides.

One thread owns everything here; paho and the workshop's thread only put events in the inbox.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from edge_client.address import BrokerAddress
from edge_client.link import Arrived, Confirmed, Inbox, Link, LinkDown, LinkUp
from edge_client.transfer import WriteChunk
from edge_server import rounds
from edge_server.conduct import ConductRules
from edge_server.config import Config
from edge_server.disk import disk_has_failed
from edge_server.history import RoundRecord, Summary
from edge_server.receivers.pool import FromReceiver, ReceiverLost, Receivers
from edge_server.receivers.told import Misfit, NoRoom, Placed, Told, Unable
from edge_server.recovery import Recovered
from edge_server.round_events import (
    Announce,
    Broke,
    CheckUpdate,
    ChunkArrived,
    CloseRound,
    Command,
    Deliver,
    End,
    Event,
    FromFleet,
    Misbehaved,
    Note,
    PlanRound,
    Publish,
    RoundClosed,
    RoundPlanned,
    Send,
    SendChunks,
    SpoolChunk,
    Started,
    Stopped,
    Strike,
    Tick,
    UpdateChecked,
)
from edge_server.rounds import Buffering, Federation, RoundRules
from edge_server.snapshot import Snapshot
from edge_server.tally import ALL, Tally
from edge_server.views import make_snapshot, make_summary
from edge_server.workshop import Workshop
from schemas.blobs import CHUNK_HEADER_BYTES, SMALL_CHUNK_BYTES, BlobRef, Chunk, decode_chunk
from schemas.errors import ConfigError, EdgeError, PeerError
from schemas.messages import (
    FromDevice,
    Message,
    Refusal,
    Task,
    Telemetry,
    Update,
    decode_message,
    encode_message,
)
from schemas.topics import Channel, DeviceTopic, LayerTopic, StateTopic, parse_topic, server_filters
from schemas.values import Reason

log = logging.getLogger(__name__)

TICK_S = 0.25
LONGEST_DELAY_S = 2.0
"""There is one server: it may ask for the broker often."""
PACKET_SLACK = 1024
CHECKS_AT_ONCE = 64
"""Updates that are checked together: their devices wait for one another, but for the disk only once."""
SHOWN_SHARE = 50
"""A look at the run, of which there are four a second, may take a fiftieth of the server's time."""


class Suspended(EdgeError):
    """The server has gone down in mid-run, told to or `failed`; started again, it goes on."""

    def __init__(self, message: str, *, failed: bool = False) -> None:
        super().__init__(message)
        self.failed = failed


class Watcher(Protocol):
    """Whoever shows the run."""

    def show(self, snapshot: Snapshot) -> None:
        """Take the state of the run, up to four times a second."""
        ...


@dataclass(frozen=True)
class JobDone:
    """Event: a job of the workshop has ended; `event` is what the machine shall hear of it."""

    event: Event
    record: RoundRecord | None = None


@dataclass(frozen=True)
class ChecksDone:
    """Event: some updates were checked."""

    events: tuple[UpdateChecked, ...]


@dataclass(frozen=True)
class JobFailed:
    """Event: a job of the workshop has raised."""

    error: BaseException


class Server:
    """Runs one federation to its end, from its beginning or from where an earlier process left it."""

    def __init__(
        self,
        config: Config,
        run: str,
        address: BrokerAddress,
        workshop: Workshop,
        watcher: Watcher,
        recovered: Recovered | None = None,
    ) -> None:
        self._config, self._address = config, address
        self._workshop, self._watcher = workshop, watcher
        self.inbox: Inbox = queue.SimpleQueue()
        name = config.federation.name
        self._link = Link(
            address,
            self.inbox,
            client_id=f"{name}-server",
            filters=server_filters(name, blobs=not config.federation.receivers),
            longest_delay_s=LONGEST_DELAY_S,
        )
        self._receivers = Receivers(
            config.federation.receivers, name, address, workshop.store.directory, self.inbox
        )
        self._jobs = ThreadPoolExecutor(max_workers=1, thread_name_prefix="workshop")
        self._unchecked: queue.SimpleQueue[tuple[CheckUpdate, Task]] = queue.SimpleQueue()
        self._federation = Federation(name, run, make_rules(config))
        self._tally = Tally()
        self._partial: set[str] = set()
        self._announced: Message | None = None
        if recovered is not None:
            self._take_over(recovered)
        self._began = time.monotonic()
        self._next_tick = self._next_look = 0.0
        self._no_link = f"connecting to {address}"
        self._end: End | None = None
        self._exported: Future[dict[int, Path]] | None = None

    def run(self) -> Summary:
        """Serve until the run is over; what breaks the server ends it as failed, with the reason.

        Raises `Suspended` where the run is not over and may go on another time.
        """
        self._receivers.open()
        self._link.open()
        self._step(Started())
        try:
            while self._end is None:
                self._turn()
        except Exception as error:
            if disk_has_failed(error):
                raise _suspended(error) from error
            raise
        finally:
            self._receivers.close()
            self._link.close()
            finished = self._end is not None and self._end.outcome == "finished"
            self._jobs.shutdown(wait=True, cancel_futures=not finished)
            if self._end is None:
                self._workshop.put_down()
        return self._finish(self._end)

    def stop(self) -> None:
        """End the run soon; may be called from a signal handler or another thread."""
        self.inbox.put(Stopped())

    def suspend(self) -> None:
        """Go down soon and leave the run as it is; may be called from a signal handler."""
        self.inbox.put(Suspended("the server was told to go down"))

    def _take_over(self, recovered: Recovered) -> None:
        self._federation = recovered.federation
        self._tally.restore(recovered.traffic, recovered.history)
        for delivery in recovered.deliveries:
            self._tally.delivered(delivery)
        self._partial = self._workshop.store.parts()
        self._tally.notes.append(f"going on with round {self._federation.round}, which was cut off")

    def _turn(self) -> None:
        now = time.monotonic()
        if now >= self._next_tick:
            self._next_tick = now + TICK_S
            self._step(Tick())
            self._show(now)
        try:
            event = self.inbox.get(timeout=max(0.0, self._next_tick - now))
        except queue.Empty:
            return
        try:
            self._handle(event)
        except PeerError as error:
            self._tally.refused(None, error.reason)
            log.warning("ignored (%s): %s", error.reason, error)

    def _show(self, now: float) -> None:
        if now >= self._next_look:
            self._watcher.show(self._snapshot())
            self._next_look = now + SHOWN_SHARE * (time.monotonic() - now)

    def _handle(self, event: Any) -> None:
        match event:
            case Arrived(topic, payload):
                self._arrived(topic, payload)
            case LinkUp(_, max_packet):
                log.info("connected to %s", self._address)
                self._no_link = ""
                if max_packet is not None and max_packet < self._workshop.chunk_bytes + PACKET_SLACK:
                    self._workshop.chunk_bytes = SMALL_CHUNK_BYTES
                self._link.handle(event)
                if self._announced is not None:
                    # A broker without persistence has forgotten it.
                    self._announce(self._announced)
            case LinkDown(reason):
                self._no_link = f"no connection to {self._address}: {reason}; trying again"
                log.info("%s", self._no_link)
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
                self._step(done)
            case ChecksDone(events):
                for checked in events:
                    self._step(checked)
            case JobFailed(error):
                if disk_has_failed(error):
                    raise error
                log.error("the run cannot go on", exc_info=error)
                self._step(Broke(f"{type(error).__name__}: {error}"))
            case Stopped():
                self._step(event)
            case Suspended():
                raise event

    # --- what comes in ---
    def _arrived(self, topic: str, payload: bytes) -> None:
        where = parse_topic(topic)
        if not isinstance(where, DeviceTopic):
            raise PeerError(f"nothing is expected on {topic}")
        self._tally.received(where.device, len(payload))
        try:
            if where.channel is Channel.UP_BLOB:
                self._step(ChunkArrived(where.device, decode_chunk(payload)))
            elif payload:
                self._take(where, payload)
        except PeerError as error:
            self._refuse(where.device, error)

    def _take(self, where: DeviceTopic, payload: bytes) -> None:
        message = decode_message(payload, federation=self._config.federation.name)
        if not isinstance(message, FromDevice):
            raise PeerError(f"a device does not send '{message.kind}'", reason=Reason.UNKNOWN_KIND)
        if message.device != where.device:
            detail = f"'{message.kind}' of {message.device} on the topic of {where.device}"
            raise PeerError(detail, reason=Reason.WRONG_SENDER)
        if isinstance(message, Telemetry):
            self._tally.told(message)
        if isinstance(message, Refusal):
            log.info("%s refuses (%s): %s", message.device, message.reason, message.detail)
        self._step(FromFleet(message, have=self._have(message)))
        if isinstance(message, Update):
            self._expect(message)

    def _expect(self, claim: Update) -> None:
        """A claim that was taken: its chunks have a place, whoever gets them."""
        participant = self._federation.participants.get(claim.device)
        if participant is not None and participant.update == claim and not participant.final:
            self._receivers.expect(claim.device, claim.blob)

    def _received(self, told: Told) -> None:
        """What a receiver says of what came to it."""
        match told:
            case Placed(device=device, prefix=prefix, index=index, size=size):
                self._tally.received(device, size + CHUNK_HEADER_BYTES)
                try:
                    # Its bytes are in their place; the machine only looks at how many they are.
                    self._step(ChunkArrived(device, Chunk(prefix, index, bytes(size))))
                except PeerError as error:
                    self._refuse(device, error)
            case Misfit(device=device, reason=reason, detail=detail, size=size):
                self._tally.received(device, size)
                self._refuse(device, PeerError(detail, reason=Reason(reason)))
            case NoRoom(errno=errno, detail=detail):
                raise OSError(errno, detail)
            case Unable(detail=detail):
                raise ConfigError(
                    f"[federation] receivers: {detail}: leave receivers at 0, or use a broker with shared "
                    "subscriptions (Mosquitto 2, EMQX, HiveMQ, or the embedded one)"
                )

    def _have(self, message: FromDevice) -> int:
        """The chunks of a claimed update that came before the server was restarted."""
        if not isinstance(message, Update) or message.blob.digest not in self._partial:
            return 0
        self._partial.discard(message.blob.digest)
        return self._workshop.store.present(message.blob)

    def _refuse(self, device: str, error: PeerError) -> None:
        """Log and count what was wrong, and tell the device why."""
        self._tally.refused(device, error.reason)
        log.warning("%s: ignored (%s): %s", device, error.reason, error)
        refusal = Refusal(
            federation=self._config.federation.name,
            device=device,
            reason=Reason(error.reason),
            detail=str(error)[:500],
        )
        self._send(device, refusal)
        self._step(Misbehaved(device, refusal.reason))

    # --- what the machine decides ---
    def _step(self, event: Event) -> None:
        self._federation, commands = rounds.step(self._federation, event, time.monotonic())
        for command in commands:
            self._do(command)

    def _do(self, command: Command) -> None:
        match command:
            case Send(device, message, vouched):
                self._send(device, self._workshop.notary.countersigned(message, vouched))
            case Announce(message):
                self._announce(message)
            case SendChunks(device, ref, first, count):
                for index in range(first, min(first + count, ref.chunks)):
                    self._send_chunk(device, ref, index)
            case Publish():
                self._publish(command)
            case SpoolChunk() if len(self._receivers):
                pass
            case SpoolChunk(_, WriteChunk(ref, index, data, crc)):
                self._workshop.store.write_chunk(ref, index, data, crc)
            case PlanRound() | CheckUpdate() | CloseRound():
                self._begin_job(command)
            case Note():
                log.warning("%s", self._tally.noted(command))
            case Strike(device, number, why):
                self._workshop.struck(device, number, why)
            case Deliver(delivery):
                self._workshop.delivered(delivery)
                self._tally.delivered(delivery)
            case End():
                self._end = command

    def _announce(self, message: Message) -> None:
        self._announced = message
        topic = str(StateTopic(self._config.federation.name))
        self._link.publish(topic, encode_message(message), retain=True)

    def _send(self, device: str, message: Message) -> None:
        payload = encode_message(message)
        self._tally.sent(device, len(payload))
        self._link.publish(self._topic(device, Channel.DOWN), payload)

    def _send_chunk(self, device: str, ref: BlobRef, index: int) -> None:
        self._tally.sent(device, ref.chunk_size(index) + CHUNK_HEADER_BYTES)
        self._link.send_chunk(
            (device, ref.digest, index),
            self._topic(device, Channel.DOWN_BLOB),
            partial(self._workshop.store.read_frame, ref, index),
        )

    def _publish(self, command: Publish) -> None:
        """Once for all who listen; what gets lost, on its way or because there is no link, is asked for."""
        topic = str(LayerTopic(self._config.federation.name, command.channel))
        for index in range(command.first, command.first + command.count):
            frame = self._workshop.store.read_frame(command.ref, index)
            self._tally.sent(ALL, len(frame))
            self._link.publish(topic, frame, qos=0)

    def _topic(self, device: str, channel: Channel) -> str:
        return str(DeviceTopic(self._config.federation.name, device, channel))

    # --- the workshop ---
    def _begin_job(self, command: PlanRound | CheckUpdate | CloseRound) -> None:
        job: Callable[[], JobDone | ChecksDone]
        match command:
            case PlanRound():
                # In buffered mode work goes on: there a round's figures run from closing to closing.
                if command.wanted is None or command.attempt == 1:
                    self._tally.begin_round()
                job = partial(_plan, self._workshop, command)
            case CheckUpdate(device, _):
                task = self._federation.participants[device].assignment.task
                self._unchecked.put((command, task))
                job = partial(_check, self._workshop, self._unchecked)
            case CloseRound():
                uplink, downlink, seconds = self._tally.round_figures()
                self._tally.begin_round()
                job = partial(
                    _close,
                    self._workshop,
                    command,
                    uplink=uplink,
                    downlink=downlink,
                    duration_s=seconds,
                    traffic=self._tally.traffic(),
                )
        future: Future[JobDone | ChecksDone] = self._jobs.submit(job)
        future.add_done_callback(self._job_ended)
        if isinstance(command, PlanRound) and command.deliver:
            self._exported = self._jobs.submit(self._workshop.export_tiers)

    def _job_ended(self, future: Future[JobDone | ChecksDone]) -> None:
        if future.cancelled():
            return
        error = future.exception()
        self.inbox.put(future.result() if error is None else JobFailed(error))

    # --- the end ---
    def _snapshot(self, summary: Summary | None = None) -> Snapshot:
        return make_snapshot(
            self._federation,
            self._tally,
            tier=self._workshop.tier,
            ratios=self._config.tiers.levels,
            now=time.monotonic(),
            began=self._began,
            no_link=self._no_link,
            summary=summary,
        )

    def _finish(self, end: End) -> Summary:
        exported: Mapping[int, Path] = {}
        try:
            if self._exported is not None and not self._exported.cancelled():
                exported = self._exported.result()
        except (EdgeError, OSError) as error:
            end = End("failed", f"the tiers' models: {error}")
        summary = make_summary(
            self._federation,
            self._tally,
            end,
            config=self._config,
            tier=self._workshop.tier,
            parameters=self._workshop.model.parameters,
            onnx={tier: f"onnx/{path.name}" for tier, path in exported.items()},
            duration_s=time.monotonic() - self._began,
        )
        self._workshop.finish(summary)
        self._watcher.show(self._snapshot(summary))
        return summary


def _suspended(error: BaseException) -> Suspended:
    return Suspended(f"the run is suspended, for the disk takes no more: {error}", failed=True)


def make_rules(config: Config) -> RoundRules:
    """The rounds' rules as the federation file states them."""
    clients, privacy = config.clients, config.privacy
    at_once = clients.concurrency or clients.num_clients
    buffering = Buffering(clients.buffer_size, clients.max_staleness, at_once)
    return RoundRules(
        rounds=config.federation.rounds,
        start_clients=clients.start_clients or clients.num_clients,
        min_clients=max(clients.min_clients, privacy.min_holders if privacy.secure_aggregation else 1),
        quorum=clients.quorum,
        over_select=clients.over_select,
        deadline_s=clients.deadline_s,
        rejoin_s=clients.rejoin_s,
        uploads_at_once=clients.uploads_at_once,
        deliver=config.federation.deliver,
        buffering=buffering if clients.mode == "buffered" else None,
        conduct=ConductRules(
            config.firewall.quarantine_after,
            config.firewall.quarantine_window,
            config.firewall.quarantine_rounds,
        ),
        masking_step_s=privacy.masking_step_s,
    )


def _plan(workshop: Workshop, command: PlanRound) -> JobDone:
    planned: RoundPlanned = workshop.plan(command)
    return JobDone(planned)


def _check(workshop: Workshop, waiting: queue.SimpleQueue[tuple[CheckUpdate, Task]]) -> ChecksDone:
    """Check all that wait, of which each has brought one such job: some find nothing left to do."""
    checks: list[tuple[CheckUpdate, Task]] = []
    with contextlib.suppress(queue.Empty):
        while len(checks) < CHECKS_AT_ONCE:
            checks.append(waiting.get_nowait())
    return ChecksDone(tuple(workshop.check_all(checks)) if checks else ())


def _close(workshop: Workshop, command: CloseRound, **figures: Any) -> JobDone:
    return JobDone(RoundClosed(command.round), workshop.close(command, **figures))
