"""Driving the round machine: each event is applied to it, and each command that it returns is carried out."""

import logging
import secrets
import time
from dataclasses import replace

from edge_client.system.logging.formatters import about
from edge_client.transport.chunk_transfer import WriteChunk
from edge_server.coordinator import round_record, round_rules, run_storage
from edge_server.coordinator.coordinator import Coordinator
from edge_server.coordinator.jobs import (
    ChecksDone,
    Collected,
    JobDone,
    JobFailed,
    Jobs,
    RoundRecorded,
    reissue_tasks,
)
from edge_server.coordinator.publisher import Publisher
from edge_server.coordinator.reporter import RunReporter
from edge_server.rounds import event_entry, events
from edge_server.rounds import machine as rounds
from edge_server.rounds.fleet import Fleet
from edge_server.rounds.newcomers import Newcomers
from edge_server.rounds.participant import Status
from edge_server.rounds.sites.presence import Sites
from edge_server.rounds.state import Federation, Phase, is_over
from edge_server.storage.recovery import Recovered
from edge_server.transport.broker_connection import BrokerConnection
from schemas.base import fields_of
from schemas.errors import Reason
from schemas.messages import Message, Refusal, Task, TrainTask, Update
from schemas.tensors.chunks import CHUNK_SIZES

log = logging.getLogger(__name__)

Outgoing = (
    events.Announce | events.Send | events.SendChunks | events.SendToSite | events.SendTerms | events.Publish
)
"""Commands that send something to devices or sites."""
Arriving = events.WriteUpdateChunk | WriteChunk  # Commands that store what has arrived
Work = (
    events.PlanRound
    | events.CheckUpdate
    | events.CheckSum
    | events.WeighUpdates
    | events.CloseRound
    | events.RollBack
    | events.RepairBlob
)
"""Commands that begin a job in another thread."""


class RoundDriver:
    """Holds the state of the rounds, and carries out its commands.

    Chunks of updates are written here unless receivers write them (`writes_chunks`). A planning waits until
    the chunk size that the broker accepts is known.
    """

    def __init__(
        self,
        federation: Federation,
        coordinator: Coordinator,
        connection: BrokerConnection,
        jobs: Jobs,
        outgoing: Publisher,
        reporter: RunReporter,
        *,
        writes_chunks: bool,
    ) -> None:
        self.federation = federation
        self.end: events.EndRun | None = None
        self._coordinator, self._connection, self._jobs = coordinator, connection, jobs
        self._outgoing, self._reporter, self._writes_chunks = outgoing, reporter, writes_chunks
        self._fitted: int | None = None
        connection.link.fit(CHUNK_SIZES[-1])
        self._waiting: list[events.PlanRound] = []
        self._repairing: set[str] = set()

    def take_over(self, recovered: Recovered) -> None:
        """Continue the run that an earlier process left."""
        own = fields_of(self.federation, "classes", "columns", "sites")
        membership = self.federation.fleet.membership
        recovered_state = replace(recovered.federation, **own)
        fleet = recovered_state.fleet.with_membership(membership)
        self.federation = _doubting(replace(recovered_state, fleet=fleet))
        self._reporter.counters.restore(recovered.traffic, recovered.history)
        for delivery in recovered.deliveries:
            self._reporter.counters.add_delivery(delivery)
        self.federation = self._coordinator.repair.repair_all(self.federation)
        if recovered.restored:
            self.federation = reissue_tasks(
                self.federation,
                recovered.restored,
                self._coordinator.signer,
                self._coordinator.storage.journal,
                now=time.monotonic(),
            )
        tasks = [participant.assignment.task for participant in self.federation.at_work]
        self._jobs.publish([ref for task in tasks for ref in task.blobs.values()])
        if self.federation.phase is Phase.DELIVERING and is_over(self.federation):
            self._jobs.export_tiers()
        self._jobs.record_round()
        detail = f"with round {self.federation.round}, which was cut off"
        self._reporter.note(events.Note("going on", detail=detail, kind=event_entry.EventKind.ROUND))

    def step(self, event: events.Event) -> None:
        now = time.monotonic()
        self.federation, commands = rounds.step(self.federation, event, now)
        self._reporter.phases.at(self.federation.phase, now)
        about(round=self.federation.round)
        for command in commands:
            self.do(command)

    def do(self, command: events.Command) -> None:
        if isinstance(command, Outgoing):
            self._send(command)
        elif isinstance(command, Arriving):
            self._write(command)
        elif isinstance(command, Work):
            self._begin(command)
        else:
            self._record(command)

    def _send(self, command: Outgoing) -> None:
        match command:
            case events.Send(device, message, to_sign):
                signed = self._coordinator.signer.sign_message(message, to_sign)
                self.tell(device, self._with_addresses(device, signed))
            case events.Announce(message):
                self._outgoing.announce(message, self.federation.fleet.present())
            case events.SendChunks():
                self._outgoing.send_chunks(command)
            case events.Publish():
                self._outgoing.publish(command)
            case events.SendToSite(site, message):
                self._outgoing.send_to_site(site, message)
            case events.SendTerms(site):
                self._outgoing.send_to_site(site, self._coordinator.context.site_terms(site))

    def _write(self, command: Arriving) -> None:
        """Write a chunk, unless a receiver has written it."""
        chunk = command if isinstance(command, WriteChunk) else command.chunk
        device = None if isinstance(command, WriteChunk) else command.device
        if device is None or self._writes_chunks or self.federation.sites.of(device):
            self._coordinator.storage.store.write_chunk(chunk.ref, chunk.index, chunk.data, chunk.crc)

    def _begin(self, command: Work) -> None:
        match command:
            case events.PlanRound():
                self._plan(command)
            case events.CheckUpdate(_, update) if update.deposited:
                self._jobs.collect(command)
            case events.CheckUpdate():
                self._check(command)
            case events.WeighUpdates(close):
                self._jobs.weigh(close)
            case events.CheckSum():
                self._jobs.check_sum(command, self.federation.summing)
            case events.CloseRound():
                self._close(command)
            case events.RepairBlob(digest) if digest not in self._repairing:
                self._repairing.add(digest)
                self._jobs.repair(digest, run_storage.open_tasks(self.federation))
            case events.RollBack():
                self._jobs.roll_back(command)

    def _record(
        self, command: events.Note | events.RecordStrike | events.RecordDelivery | events.EndRun
    ) -> None:
        match command:
            case events.Note():
                self._reporter.note(command)
            case events.RecordStrike(device, number, why):
                self._coordinator.strike(device, number, why)
            case events.RecordDelivery(delivery):
                self._coordinator.storage.journal.write_delivery(delivery)
                self._reporter.counters.add_delivery(delivery)
            case events.EndRun(outcome, detail):
                self._coordinator.storage.journal.write_end(outcome, detail)
                self.end = command
                if outcome == "finished":
                    self._jobs.export_tiers()

    def job_ended(self, event: JobDone | Collected | ChecksDone | RoundRecorded | JobFailed) -> None:
        self.report_records()
        match event:
            case JobDone(done):
                self.step(done)
                if isinstance(done, events.RoundClosed):
                    # After the next planning, which does not wait for the history.
                    self._jobs.record_round()
                if isinstance(done, events.BlobsLost):
                    self._repairing.clear()
            case Collected(command, True):
                stored = self._reporter.counters.indirect.stored
                stored[command.device] += command.update.blob.size
                self._check(command)
            case Collected(events.CheckUpdate(device, update), False, have):
                self.step(events.NotInObjectStore(device, update.blob.digest, have))
            case ChecksDone(checks):
                for checked in checks:
                    self.step(checked)
            case JobFailed(error):
                log.error("the run cannot continue", exc_info=error)
                self.step(events.ServerFailed(f"{type(error).__name__}: {error}"))

    def report_records(self) -> None:
        """Report the rounds whose records have become complete."""
        for record in self._coordinator.recorder.take():
            self._reporter.report_closed(record)

    def fit(self) -> None:
        """Set the chunk size that the broker accepts, once known, and begin the waiting plannings."""
        found = self._connection.chunk_bytes
        if found is None:
            return
        if found != self._fitted:
            self._fitted = found
            self._connection.link.fit(found)
            self._note_size(found)
        waiting, self._waiting = self._waiting, []
        for command in waiting:
            self._jobs.plan(command, found)

    def knows(self, device: str) -> bool:
        return device in self.federation.fleet.devices

    def was_accepted(self, update: Update) -> bool:
        """Whether the journal has an update that answers no open task as accepted."""
        participant = self.federation.participants.get(update.device)
        known = update.run == self.federation.run and update.attempt <= self.federation.attempt
        if not known or (participant is not None and participant.is_meant(update)):
            return False
        return self._coordinator.storage.journal.has_accepted(update)

    def tell(self, device: str, message: Message) -> None:
        """Send a device a message; refusals to devices outside the fleet are rate-limited."""
        is_answer = isinstance(message, Refusal) and not self.knows(device)
        if not is_answer or self._outgoing.may_answer_stranger():
            self._outgoing.send(device, message)

    def refuse_site(self, site: str, detail: str) -> None:
        """Tell the gateway of an unknown site that it is none of the federation's; rate-limited."""
        refusal = Refusal(
            federation=self.federation.name, device=site, reason=Reason.NOT_ENTITLED, detail=detail[:500]
        )
        if self._outgoing.may_answer_stranger():
            self._outgoing.send_to_site(site, refusal)

    def _note_size(self, chunk_bytes: int) -> None:
        size = f"{chunk_bytes // 1024} kB"
        if chunk_bytes == CHUNK_SIZES[0]:
            tried = "" if self._connection.echo.is_measured else ", not tried"
            log.info("blobs travel in chunks of %s%s", size, tried)
            return
        detail = f"the broker passes on no larger packets; models travel in chunks of {size}, which is slower"
        self._reporter.note(events.Note("small packets:", detail=detail))

    def _plan(self, command: events.PlanRound) -> None:
        # In buffered mode rounds overlap: a round's figures are those from closing to closing.
        if command.wanted is None or command.attempt == 1:
            self._reporter.counters.begin_round()
        self._waiting.append(command)
        self.fit()
        if command.deliver and is_over(self.federation):
            self._jobs.export_tiers()

    def _check(self, command: events.CheckUpdate) -> None:
        """Begin the check of an update, if the round still waits for it."""
        participant = self.federation.participants.get(command.device)
        if participant is None or participant.status is not Status.CHECKING:
            return
        task = participant.assignment.task
        if isinstance(task, TrainTask):
            self._jobs.check(command, task)

    def _close(self, command: events.CloseRound) -> None:
        counters = self._reporter.counters
        uplink, downlink, seconds = counters.round_figures()
        counters.begin_round()
        figures = round_record.RoundFigures(uplink, downlink, seconds, traffic=counters.traffic())
        self._jobs.close_round(command, figures)

    def _with_addresses(self, device: str, message: Message) -> Message:
        """A task with fresh addresses in the object store, where there is one."""
        remote = self._coordinator.storage.object_store
        participant = self.federation.participants.get(device)
        if remote is None or participant is None or not isinstance(message, Task):
            return message
        return remote.with_addresses(message, device, participant.assignment.max_bytes)


def new_federation(coordinator: Coordinator) -> Federation:
    """The rounds of a run before its first event."""
    context = coordinator.context
    config = context.config
    return _doubting(
        Federation(
            config.federation.name,
            context.run,
            round_rules.make_rules(config),
            fleet=Fleet(membership=round_rules.make_membership(config)),
            columns=context.columns,
            classes=context.classes,
            sites=Sites(config.federation.sites),
        )
    )


def _doubting(federation: Federation) -> Federation:
    """The federation with a fresh secret that new devices must answer: a broker may accept any client."""
    fleet = replace(federation.fleet, newcomers=Newcomers(secrets.token_hex(16)))
    return replace(federation, fleet=fleet)
