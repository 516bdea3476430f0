"""Runs the session's state machine: feeds it events and executes its commands."""

import logging
import math
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from edge_client.agent import announcer, server_contact
from edge_client.agent.service import Service
from edge_client.agent.session import events, machine
from edge_client.agent.session.secure_participation import SecureParticipation
from edge_client.agent.settings import AgentSettings, TaskContext
from edge_client.agent.state_store import StateStore, forget_others, keep_blob, keep_chunk
from edge_client.agent.worker import DataChanged, Progress, Worker
from edge_client.security.secure_aggregation.keys import ENTROPY_BYTES
from edge_client.storage.blob_store import BlobStore
from edge_client.system.logging.formatters import about
from edge_client.transport import broker_link, chunk_transfer
from edge_client.transport.object_store import http, http_transfers
from schemas import messages, topics
from schemas.tensors.chunks import BlobRef, ChunkSet

log = logging.getLogger(__name__)

DAY_S = 86_400
LOOK_S, IDLE_S = 3600.0, 30 * DAY_S


class TransferThreads:
    """Runs a session's transfers with an object store, each in its own thread: a slow store blocks no device.

    Each reports `FetchEnded` or `PutEnded` to the inbox.
    """

    def __init__(self, inbox: broker_link.Inbox, store: BlobStore, web: http.HttpClient) -> None:
        self._inbox, self._store, self._web = inbox, store, web
        self._stopped = threading.Event()
        self._threads: dict[str, threading.Thread] = {}

    def do(self, command: http_transfers.ObjectStoreCommand) -> None:
        """Begin a transfer, or stop all of them."""
        match command:
            case http_transfers.Fetch(ref, url):
                fetch = partial(http.fetch_blob, self._web, url, ref, self._store)
                self._begin(
                    ref,
                    fetch,
                    lambda out: http_transfers.FetchEnded(ref.digest, out.have, out.expired, out.moved),
                )
            case http_transfers.Put(ref, url, resumable):
                put = partial(http.put_blob, self._web, url, ref, self._store, resumable=resumable)
                self._begin(ref, put, lambda out: http_transfers.PutEnded(ref.digest, out.done, out.expired))
            case _:
                self.stop()

    def stop(self) -> None:
        """Stop all transfers within a block, without an event."""
        self._stopped.set()
        self._stopped = threading.Event()

    def _begin(
        self,
        ref: BlobRef,
        transfer: Callable[..., http.TransferOutcome],
        event_of: Callable[[http.TransferOutcome], http_transfers.ObjectStoreEvent],
    ) -> None:
        before, stopped = self._threads.get(ref.digest), self._stopped

        def run() -> None:
            # One writer per blob: an earlier transfer of it ends first.
            if before is not None:
                before.join()
            try:
                outcome = transfer(stopped=stopped)
            except Exception as error:
                # Any error ends the transfer: the blob can still go over the broker.
                log.warning("the object store transfer failed (%s: %s)", type(error).__name__, error)
                outcome = http.TransferOutcome(False)
            if not stopped.is_set():
                self._inbox.put(event_of(outcome))

        self._threads = {name: thread for name, thread in self._threads.items() if thread.is_alive()}
        self._threads[ref.digest] = threading.Thread(target=run, name="object-store", daemon=True)
        self._threads[ref.digest].start()


class SessionRunner(Service):
    """Holds the session, which only `step` changes.

    `context` is what tasks are run with; `outcome` is that of the last run that ended.
    """

    def __init__(
        self,
        settings: AgentSettings,
        context: TaskContext,
        state_store: StateStore,
        messenger: server_contact.Messenger,
        worker: Worker,
        inbox: broker_link.Inbox,
        telemetry: announcer.WorkTelemetry,
    ) -> None:
        self._snapshot = state_store.load_snapshot()
        self.session = machine.Session(
            settings.federation,
            settings.device,
            held=state_store.blobs.digests(),
            masks=SecureParticipation(only_masked=settings.only_masked),
        )
        self.context = context
        self.outcome: str | None = None
        self.state_store, self._messenger = state_store, messenger
        self.worker, self._telemetry = worker, telemetry
        self._transfers = TransferThreads(inbox, state_store.blobs, http.http_client(settings.address.tls))
        self._restored = False
        self._warned_of_little_data = False

    @property
    def has_restored_session(self) -> bool:
        """Whether the session has what an earlier process has left."""
        return self._restored

    # --- what the agent reports ---
    def on_connected(self, up: broker_link.LinkUp, now: float) -> None:
        """Resume; the first time, with the state that an earlier process has left."""
        self.step(events.Connected())
        if not self._restored:
            self._restored = True
            self.step(events.SessionRestored(self._snapshot, self.stored_chunks(self._snapshot.task)))

    def on_disconnected(self, down: broker_link.LinkDown) -> None:
        self.step(events.Disconnected())

    def tick(self, now: float, session: machine.Session) -> None:
        self.step(events.Tick())

    def handle(self, event: Any) -> None:
        match event:
            case Progress():
                self._on_progress(event)
            case DataChanged(data):
                self.context = replace(self.context, data=data)
            case (
                events.WorkDone()
                | events.WorkFailed()
                | events.UpdateMasked()
                | http_transfers.FetchEnded()
                | http_transfers.PutEnded()
            ):
                self.step(event)

    def stop(self) -> None:
        self._transfers.stop()
        self.worker.stop(wait_s=2.0)
        self.state_store.close()

    def limit_chunks(self, chunk_bytes: int) -> None:
        """Use chunks, and messages, of at most this many bytes; the limit never grows."""
        if chunk_bytes >= self.context.chunk_bytes:
            return
        log.info("blobs travel in chunks of %d kB", chunk_bytes // 1024)
        self.context = replace(self.context, chunk_bytes=chunk_bytes)
        self._messenger.limit_chunks(chunk_bytes)
        self.step(events.ChunkBytesLimited(chunk_bytes))

    def check_room(self, task: messages.Task) -> None:
        """Raise `PeerError` if a new task's blobs do not fit on the disk."""
        if not self.session.is_at(task.run, task.attempt):
            self.state_store.check_room(task)

    def stored_chunks(self, task: messages.Task | None) -> dict[str, ChunkSet]:
        """The chunks, by digest, that are already stored of a new task's blobs."""
        if task is None or self.session.is_at(task.run, task.attempt):
            return {}
        return {ref.digest: self.state_store.blobs.present(ref) for ref in task.blobs.values()}

    # --- what the session decides ---
    def step(self, event: events.Event) -> None:
        """Apply an event and execute the commands that follow; raises what `machine.step` raises."""
        before = self.session
        self.session, commands = machine.step(before, event, time.monotonic())
        if self.session.task is not before.task or self.session.awaited_digests != before.awaited_digests:
            # Before the reply to a task, which states that these topics are subscribed.
            self._messenger.subscribe(self.session.listens)
        # A server that replaces its tasks must not fill the disk.
        begun = self.session.task is not None and self.session.task is not before.task
        crowded, started = begun and not isinstance(event, events.SessionRestored), False
        for command in commands:
            if crowded and isinstance(command, events.StartWork):
                # Not later: the worker may store its result at once.
                self.state_store.make_room(self.session)
                started = True
            self.execute(command)
        if started:
            self.step(events.BlobsDiscarded(self.state_store.blobs.digests()))
        elif crowded:
            self._make_room()
        # After the commands: a settled result must be committed before its task is forgotten. And not before
        # the first connection: until then the session lacks what an earlier process has left.
        if self._restored:
            self.state_store.remember(self.session)

    def execute(self, command: events.Command) -> None:
        match command:
            case events.SendMessage(message):
                self._messenger.publish(topics.Channel.UP, message)
            case events.SendChunks():
                self.send_chunks(command)
            case chunk_transfer.WriteChunk():
                if (lost := keep_chunk(self.state_store.blobs, command)) is not None:
                    self._make_room()
                    self.step(lost)
            case chunk_transfer.VerifyBlob(ref):
                if self.session.has_all_of(ref):
                    self.step(keep_blob(self.state_store.blobs, ref))
            case events.StartWork(task):
                self._start(task)
            case events.DrawEntropy(task):
                self.step(events.EntropyDrawn(task, os.urandom(ENTROPY_BYTES)))
            case events.MaskUpdate(update, membership):
                self.worker.mask(update, membership, self.context)
            case http_transfers.Fetch() | http_transfers.Put() | http_transfers.StopTransfers():
                self._transfers.do(command)
            case events.StopWork():
                log.info("the task is no longer wanted")
                self.worker.stop()
            case events.Settled():
                self.settle(command)
            case events.RunEnded(end):
                log.info("run %s has ended: %s", end.run, end.outcome)
                self.outcome = self.outcome if end.goes_on else end.outcome

    def send_chunks(self, command: events.SendChunks) -> None:
        last = min(command.first + command.count, command.ref.chunks)
        self._messenger.publish_chunks(self.state_store.blobs, command.ref, range(command.first, last))

    def _make_room(self) -> None:
        self.step(events.BlobsDiscarded(self.state_store.make_room(self.session)))

    def _start(self, task: messages.Task) -> None:
        about(run=task.run, round=task.round)
        if isinstance(task, messages.TrainTask) and task.statistics is not None:
            log.info("round %d: statistics of the data", task.round)
        else:
            log.info("round %d: %s at tier %d", task.round, task.action, task.tier)
            few = self.context.data.fewer_than_a_batch(task)
            if few and not self._warned_of_little_data:
                self._warned_of_little_data = True
                log.warning("%s", few)
        self._telemetry.begun(task, time.monotonic())
        self.worker.start(task, self.context)

    def _on_progress(self, event: Progress) -> None:
        task = self.session.task
        if self.session.phase is not machine.SessionPhase.WORKING or task is None or task != event.task:
            return
        self.step(events.EpochReached(task, event.epoch))
        log.info("round %d: epoch %d of %d, loss %s", task.round, event.epoch, event.epochs, event.loss)
        self._telemetry.on_progress(event, time.monotonic())

    def settle(self, settled: events.Settled) -> None:
        result, refusal = settled.result, settled.refusal
        if refusal is not None:
            about_it = {"round": result.round, "reason": refusal.reason}
            log.warning("round %d: refused (%s) %s", *about_it.values(), refusal.detail, extra=about_it)
        else:
            log.info("round %d: %s accepted", result.round, result.kind)
            if isinstance(result, messages.Update) and result.metrics.epochs:
                self.worker.note_training(self.context, result.metrics.received_loss)
        self.state_store.settle(settled)
        if self.session.phase is not machine.SessionPhase.WORKING:
            # An answer may come late: files that the worker uses must stay.
            self._make_room()


class BlobWatch(Service):
    """Removes the blobs of the last task, frozen layers among them, once no task has come for `IDLE_S`.

    By the times of files, so that a board that is off at night counts its days. What a later task needs is
    fetched again.
    """

    def __init__(self, runner: SessionRunner) -> None:
        self._runner, self._next = runner, 0.0

    def tick(self, now: float, session: machine.Session) -> None:
        if now < self._next or session.phase is not machine.SessionPhase.IDLE:
            return
        self._next = now + LOOK_S
        blobs = self._runner.state_store.blobs
        waiting = session.result or session.unanswered or session.masks.trained
        if (
            session.held
            and self._runner.has_restored_session
            and not waiting
            and blobs.newest() < time.time() - IDLE_S
        ):
            log.info("no task has come for %d days: its blobs are removed", IDLE_S // DAY_S)
            forget_others(blobs, frozenset())
            self._runner.step(events.BlobsDiscarded(blobs.digests()))


class DataWatch(Service):
    """Asks the worker every `every_s` seconds of idle time to look at data that may grow; 0 never asks."""

    def __init__(self, worker: Worker, runner: SessionRunner, *, every_s: float) -> None:
        self.worker, self._runner = worker, runner
        self._every_s = every_s or math.inf
        self._next = math.inf

    def on_connected(self, up: broker_link.LinkUp, now: float) -> None:
        self._next = min(self._next, now + self._every_s)

    def tick(self, now: float, session: machine.Session) -> None:
        if now >= self._next and session.phase is machine.SessionPhase.IDLE:
            self._next = now + self._every_s
            self.worker.look(self._runner.context)
