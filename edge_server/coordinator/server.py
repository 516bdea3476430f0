"""The server: one thread handles all events; other threads only put them in its inbox."""

import contextlib
import logging
import os
import time
from collections.abc import Iterator
from typing import Any

from edge_client.system.watchdog import watchdog_of
from edge_client.transport.broker_link import Arrived, BrokerAddress, Confirmed, LinkDown, LinkEvent, LinkUp
from edge_client.transport.event_loop import EventLoop
from edge_server.coordinator.coordinator import Coordinator
from edge_server.coordinator.intake import Intake
from edge_server.coordinator.jobs import ChecksDone, Collected, JobDone, JobFailed, Jobs, RoundRecorded
from edge_server.coordinator.publisher import Publisher
from edge_server.coordinator.reception import LabelWatch, Reception
from edge_server.coordinator.reporter import Moment, RunReporter
from edge_server.coordinator.round_driver import RoundDriver, new_federation
from edge_server.coordinator.standby.shipper import EntryMade, FollowedRun, Shipper, StandbyOutput
from edge_server.coordinator.standby.writing_right import HeldInbox, Suspended, WritingRight
from edge_server.observability.counters import RunCounters
from edge_server.observability.snapshot import ServerParts, Watcher
from edge_server.rounds import events
from edge_server.rounds.event_entry import EventKind
from edge_server.storage import disk, records, recovery
from edge_server.transport.lease.keeper import LeaseKeeper
from edge_server.transport.receivers.pool import FromReceiver, ReceiverLost, ReceiverPool
from schemas.messages import Message
from schemas.messages.message import ServedMessage

log = logging.getLogger(__name__)

TICK_S = 0.25
SECRET_NOISE = (
    "with differential privacy the state holds the secret that the noise is made from, which must not leave "
    "this machine: run such a federation without a standby"
)
SHOWN_SHARE = 1 / 50  # Largest share of the server's time that snapshots may take


class Server:
    """Runs one federation to its end, from its beginning or from where an earlier process left it."""

    def __init__(
        self,
        address: BrokerAddress,
        coordinator: Coordinator,
        watcher: Watcher,
        recovered: recovery.Recovered | None = None,
        lease: LeaseKeeper | None = None,
        reception: Reception | None = None,
        labels: LabelWatch | None = None,
    ) -> None:
        reception = reception or Reception(coordinator.context.config, address, lease)
        self.coordinator, self._labels = coordinator, labels
        self.inbox, self.connection = reception.inbox, reception.connection
        self._standby_topic = reception.standby_topic
        run, journal = coordinator.context.run, coordinator.storage.journal
        self._right = WritingRight(lease, self.connection.link, journal, run, linked=reception.is_open)
        settings, blobs = coordinator.context.config.federation, coordinator.storage.folder.blobs
        self._receivers = ReceiverPool(settings.receivers, settings.name, address, blobs, self.inbox)
        self.jobs = Jobs(coordinator, self.inbox)
        self._shipper = None if lease is None else self._make_shipper(lease)
        counters = RunCounters(known=lambda device: self.driver.knows(device))
        self.reporter = RunReporter(coordinator, watcher, counters, self._look, share=SHOWN_SHARE)
        self._outgoing = self._make_publisher(counters)
        self.driver = RoundDriver(
            new_federation(coordinator),
            coordinator,
            self.connection,
            self.jobs,
            self._outgoing,
            self.reporter,
            writes_chunks=not settings.receivers,
        )
        self._intake = self._make_intake(recovered)
        self._watchdog = watchdog_of(os.environ)
        self._held = HeldInbox(self.inbox, self._right, reception.hand_over())
        self.loop = EventLoop(
            self._held,
            TICK_S,
            tick=self._tick,
            handle=self._handle,
            on_peer_error=self.reporter.report_ignored,
        )

    def _make_shipper(self, lease: LeaseKeeper) -> Shipper:
        """What keeps a standby up to date, should one come."""
        context, storage = self.coordinator.context, self.coordinator.storage
        refused = SECRET_NOISE if context.privacy.on else ""
        run = FollowedRun(storage.folder.path, storage.journal, self.jobs.in_turn, refused)
        output = StandbyOutput(context.config.federation.name, self.connection.link)
        return Shipper(run, output, lease, self.inbox)

    def _make_publisher(self, counters: RunCounters) -> Publisher:
        """What sends to devices, once the standby knows what the messages follow from."""
        settings = self.coordinator.context.config.federation
        return Publisher(
            settings.name,
            self.connection.link,
            self.coordinator.storage.store,
            counters,
            lambda digest: self.inbox.put(events.RepairBlob(digest)),
            self._with_epoch,
            lambda send: send() if self._shipper is None else self._shipper.gate(send),
            settings.sites,
        )

    def _make_intake(self, recovered: recovery.Recovered | None) -> Intake:
        """What takes messages of devices; a run that goes on has chunks from before."""
        store = self.coordinator.storage.store
        partial = store.parts() if recovered else set[str]()
        if recovered is not None:
            self.driver.take_over(recovered)
        return Intake(self.driver, self.reporter, self._receivers, store, partial=partial)

    def run(self) -> records.Summary:
        """Serve until the run is over; raises `Suspended` if it stops before and can be resumed."""
        self.begin()
        self._watchdog.ready()
        with _suspended_by_full_disk():
            try:
                self.loop.run(until=lambda: self.is_over)
            finally:
                self.close()
            self.record_last_round()
        end = self.driver.end
        assert end is not None
        return self.reporter.finish(end, self.jobs.exported_files)

    def begin(self) -> None:
        """Open the connections and begin the run, or go on with it."""
        self._receivers.open()
        self._right.exercise()
        self.driver.step(events.Started())

    def warn(self, what: str, detail: str) -> None:
        """Note something that concerns the user; may be called from another thread."""
        self.inbox.put(events.Note(what, detail=detail))

    def stop(self) -> None:
        """End the run soon; may be called from a signal handler or another thread."""
        self.inbox.put(events.StopRequested())

    def suspend(self) -> None:
        """Stop the server soon and leave the run as it is; may be called from a signal handler."""
        self.inbox.put(Suspended("the server was asked to stop"))

    @property
    def is_over(self) -> bool:
        """Whether the run is over, and nothing that devices must hear waits for the standby."""
        return self.driver.end is not None and (self._shipper is None or not len(self._shipper.gate))

    def close(self) -> None:
        """Close connections and threads; of a run that is not over, the files too."""
        end = self.driver.end
        self._watchdog.stopping()
        self._receivers.close()
        if self._shipper is not None:
            self._shipper.close()
        self.connection.link.close()
        self.jobs.end(finished=end is not None and end.outcome == "finished")
        self.coordinator.aggregators.close()
        if end is None:
            self.reporter.list(
                events.Note("server goes down", detail="the run is not over", kind=EventKind.ROUND)
            )
            self.coordinator.suspend()

    def record_last_round(self) -> None:
        """Wait for the test of the last model, and report its round."""
        try:
            self.coordinator.recorder.record_round()
            self.driver.report_records()
        except Exception:
            self.coordinator.suspend()
            raise

    def _tick(self, now: float) -> None:
        if self._right.exercise():
            self._take_labels()
            self.driver.step(events.Tick())
            self.connection.echo.tick(now)
            if self._shipper is not None:
                self._shipper.tick(now)
            self.driver.fit()
        self._watchdog.alive(now)
        self.reporter.show_if_due()

    def _take_labels(self) -> None:
        changed = None if self._labels is None else self._labels.poll()
        if changed is not None:
            self.driver.step(events.LabelsChanged(changed))

    def _handle(self, event: Any) -> None:
        match event:
            case Arrived() | LinkUp() | LinkDown() | Confirmed():
                self._handle_link(event)
            case FromReceiver(message):
                self._intake.take_from_receiver(message)
            case ReceiverLost():
                self._receivers.replace(event)
            case JobFailed(error) if disk.disk_has_failed(error):
                raise error
            case JobDone() | Collected() | ChecksDone() | RoundRecorded() | JobFailed():
                self.driver.job_ended(event)
            case EntryMade() if self._shipper is not None:
                self._shipper.announce()
            case events.RepairBlob() | events.Note():
                self.driver.do(event)
            case events.StopRequested():
                self.driver.step(event)
            case Suspended():
                raise event

    def _handle_link(self, event: LinkEvent) -> None:
        now = time.monotonic()
        if self._shipper is not None and isinstance(event, Arrived) and event.topic == self._standby_topic:
            self._shipper.hear(event.payload, now)
            return
        received = self.connection.receive(event, now)
        match event:
            case LinkUp():
                log.info("connected to %s", self.connection.address)
                self.reporter.list(events.Note("connected to the broker", kind=EventKind.JOIN))
                self._outgoing.announce_again()
                self.driver.step(events.Reconnected())
            case LinkDown(reason):
                log.info("%s", self.connection.trouble)
                self.reporter.list(
                    events.Note("no connection to the broker", detail=reason, kind=EventKind.LOSS)
                )
        if received is not None:
            self._intake.take(*received, retained=isinstance(event, Arrived) and event.retained)
        elif not isinstance(event, LinkDown | Confirmed):
            self.driver.fit()

    def _with_epoch(self, message: Message) -> Message:
        """The message with this server's epoch, unless it is the run's first."""
        epoch = self._right.epoch
        if epoch is None or not isinstance(message, ServedMessage):
            return message
        return message.model_copy(update={"epoch": epoch})

    def _look(self) -> Moment:
        link = self.connection.link
        queues = {
            "inbox": self.inbox.qsize(),
            "jobs": self.jobs.open_count,
            "outgoing": link.outgoing,
            "unheard": link.dropped,
        }
        trouble, began = self._right.trouble or self.connection.trouble, self.reporter.began
        return Moment(self.driver.federation, time.monotonic(), began, trouble, queues, self._parts())

    def _parts(self) -> ServerParts:
        """What serves the run besides this process."""
        sites = self.driver.federation.sites
        return ServerParts(
            epoch=self._right.held_epoch,
            standby="" if self._shipper is None else self._shipper.standby,
            receivers=len(self._receivers.pids),
            aggregators=len(self.coordinator.aggregators),
            gateways={name: sites.lost_since(name, 0.0) is None for name in sites.names},
        )


@contextlib.contextmanager
def _suspended_by_full_disk() -> Iterator[None]:
    """An error of the disk becomes `Suspended`: with more room the run can go on."""
    try:
        yield
    except Exception as error:
        if disk.disk_has_failed(error):
            reason = f"the run is suspended because the disk is full or failing: {disk.in_words(error)}"
            raise Suspended(reason, failed=True) from error
        raise
