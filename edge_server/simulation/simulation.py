"""The server of virtual devices, as `edge_server.coordinator.server` is the server of real ones.

State machines, coordinator and local training are those of a real federation. A timeline replaces clocks and
threads, and arithmetic replaces the transfer of chunks. Only virtual time orders the events, so a run is
equal on any machine with any number of workers. Simulated links lose nothing, so messages that a Tick repeats
are not sent.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from edge_client.system.logging.formatters import about
from edge_server.config.config import Config
from edge_server.coordinator.coordinator import Coordinator
from edge_server.coordinator.reporter import Moment, RunReporter
from edge_server.coordinator.round_record import RoundFigures, closed_event
from edge_server.coordinator.round_rules import make_membership, make_rules
from edge_server.observability.snapshot import Watcher
from edge_server.rounds import closing, events, machine, reputation
from edge_server.rounds.fleet import MAX_DEVICES, Device, Fleet
from edge_server.simulation.device import DeviceEdge, Surroundings, lay_out, link
from edge_server.simulation.events import (
    AnnouncementToAll,
    DataArrived,
    Downloaded,
    LinkChanged,
    MessageToDevice,
    MessageToServer,
    ServerEvent,
    TimelineEvent,
    Uploaded,
    WorkEnded,
)
from edge_server.simulation.population import check_chosen
from edge_server.simulation.resume import Boundary, ResumedRun, write_boundary
from edge_server.storage import disk
from edge_server.storage.records import Summary
from schemas import capabilities, messages

log = logging.getLogger(__name__)

SHOW_S = 0.25
SHOW_SHARE = 0.03  # Largest share of the time that displaying may take
WAIT_S = 0.1


class Simulation:
    def __init__(
        self,
        devices: Mapping[str, DeviceEdge],
        around: Surroundings,
        coordinator: Coordinator,
        watcher: Watcher,
        *,
        export: bool = True,
        resumed: ResumedRun | None = None,
    ) -> None:
        self._coordinator, self._devices, self._around = coordinator, devices, around
        self._export = export
        self._timeline, self._tally = around.timeline, around.tally
        config, run = coordinator.context.config, coordinator.context.run
        # No device is invented here, so all configured devices are admitted.
        fleet = Fleet(most=max(MAX_DEVICES, len(devices)), membership=make_membership(config))
        self._federation = machine.Federation(
            config.federation.name,
            run,
            _rules(config, devices),
            fleet=fleet,
            reputations=resumed.reputations if resumed else {},
            undone=resumed.undone if resumed else (),
            columns=coordinator.context.columns,
            classes=coordinator.context.classes,
        )
        self._latency_s = max(device.latency_s for device in devices.values())
        self._ticks: set[float] = set()
        self._seen: set[str] = set()
        self._end: events.EndRun | None = None
        self._until_s = config.simulation.until_s
        self._stopping = False
        # Seconds since 1970 at virtual time 0.
        self._epoch = time.time()
        self._first_round = 1
        self._reporter = RunReporter(
            coordinator,
            watcher,
            around.tally,
            self._look,
            clock=lambda: self._epoch + self._timeline.now,
            every_s=SHOW_S,
            share=SHOW_SHARE,
        )

    def run(self, boundary: Boundary | None = None) -> Summary:
        self._run_guarded(lambda: self._begin(boundary))
        while self._end is None:
            self._run_guarded(self._advance)
        self._end = self._record_last_round(self._end)
        return self._reporter.finish(self._end, partial(self._export_tiers, self._end), logged=True)

    def stop(self) -> None:
        """Ask the run to end; may be called from a signal handler."""
        self._stopping = True
        self._around.engine.stop()

    def _run_guarded(self, part: Callable[[], None]) -> None:
        """Call `part`; an exception ends the run as failed, with the reason."""
        try:
            part()
        except Exception as error:
            log.exception("the simulation cannot continue")
            self._step(events.ServerFailed(_reason(error)))

    def _begin(self, boundary: Boundary | None) -> None:
        if boundary is not None:
            self._first_round = boundary.round + 1
            self._timeline.now = boundary.now
            self._epoch -= boundary.now
            self._continue(boundary)
            return
        self._step(events.Started())
        for name, device in self._devices.items():
            self._timeline.post(0.0, LinkChanged(name))
            self._timeline.post(device.next_arrival(), DataArrived(name))

    def _record_last_round(self, end: events.EndRun) -> events.EndRun:
        """Wait for the test of the last model and record its round; the end of the run after that."""
        try:
            self._coordinator.recorder.record_round()
            self._report_records()
        except Exception as error:
            log.exception("the last round cannot be recorded")
            return events.EndRun("failed", _reason(error))
        return end

    def _advance(self) -> None:
        self._record_if_due()
        self._reporter.show_if_due()
        # An aggregated round is closed and its checkpoint written before the run may end.
        if self._stopping and self._federation.phase is not machine.Phase.CLOSING:
            self._step(events.StopRequested())
        elif self._until_s is not None and self._timeline.next_at > self._until_s:
            self._end = events.EndRun("finished", f"{self._until_s:g} virtual seconds are over")
        elif len(self._timeline):
            self._handle(self._timeline.next())
        else:
            self._step(events.ServerFailed("no device is online, none will come, and nothing is in progress"))

    def _handle(self, event: TimelineEvent) -> None:
        match event:
            case ServerEvent(events.RoundClosed() as closed):
                self._on_closed(closed)
            case ServerEvent(server_event):
                self._step(server_event)
            case MessageToServer(message, size):
                self._tally.count_received(message.device, size)
                self._step(events.MessageReceived(message))
                if not isinstance(message, messages.Death):
                    self._tally.note_contact(message.device)
                else:
                    self._tick_at(self._timeline.now + self._federation.rules.rejoin_s)
            case MessageToDevice(device, message):
                self._devices[device].receive(message)
            case AnnouncementToAll(message):
                for edge in self._devices.values():
                    edge.receive(message)
            case Downloaded(device, digest, transit):
                self._devices[device].on_downloaded(digest, transit)
            case Uploaded(device, digest, transit):
                if self._devices[device].on_uploaded(digest, transit) is not None:
                    link(self._around.store, self._coordinator.storage.store, digest)
                    self._step(events.UpdateStored(device))
            case WorkEnded(device, attempt):
                self._work_ended(self._devices[device], attempt)
            case LinkChanged(device):
                self._devices[device].update_link()
                self._timeline.post(self._devices[device].next_link_change(), event)
            case DataArrived(device):
                self._devices[device].take_arrivals()
                self._timeline.post(self._devices[device].next_arrival(), event)

    # --- the devices ---
    def _work_ended(self, device: DeviceEdge, attempt: int) -> None:
        job = device.awaited_job(attempt)
        outcome = None
        while job is not None and outcome is None and not self._stopping:
            outcome = self._around.engine.result(job, timeout_s=WAIT_S)
            self._record_if_due()
            self._reporter.show_if_due()
        if outcome is not None:
            device.finish_work(outcome)

    # --- the state machine ---
    def _step(self, event: events.Event) -> None:
        now = self._timeline.now
        self._federation, commands = machine.step(self._federation, event, now)
        self._reporter.phases.at(self._federation.phase, now)
        about(round=self._federation.round)
        for command in commands:
            if not (isinstance(event, events.Tick) and self._is_repeat(command)):
                self._do(command)
        if isinstance(event, events.RoundPlanned):
            self._tick_at(now + self._federation.rules.deadline_s)
        self._tick_at(self._federation.not_before)
        if self._federation.masking is not None:
            self._tick_at(self._federation.masking.until)

    def _tick_at(self, at: float) -> None:
        """Schedule a tick: the state machine gets the time only when something may be due."""
        now = self._timeline.now
        self._ticks = {tick for tick in self._ticks if tick > now}
        if at > now and at not in self._ticks:
            self._ticks.add(at)
            self._timeline.post(at, ServerEvent(events.Tick()))

    def _is_repeat(self, command: events.Command) -> bool:
        """Whether the command repeats a message, which no simulated link can have lost."""
        match command:
            case events.Send(_, messages.TrainTask() | messages.DeliverTask()):
                return True
            case events.Send(device, messages.BlobRequest(digest=digest)):
                return self._devices[device].sends(digest)
            case _:
                return False

    def _do(self, command: events.Command) -> None:
        now = self._timeline.now
        match command:
            case events.Send(device, message):
                self._send(self._devices[device], message)
            case events.SendChunks(device, ref, _, _):
                self._devices[device].download(ref)
            case events.Announce(message):
                assert isinstance(message, messages.FromServer)
                self._tally.count_announced(
                    self._federation.fleet.present(), len(messages.encode_message(message))
                )
                self._timeline.post(now + self._latency_s, AnnouncementToAll(message))
            case events.PlanRound():
                self._timeline.post(now, ServerEvent(self._plan(command)))
            case events.CheckUpdate(device, _):
                task = self._federation.participants[device].assignment.task
                assert isinstance(task, messages.TrainTask)
                with self._coordinator.context.durations.time_block("checking"):
                    checked = self._coordinator.checker.check(command, task, self._coordinator.model.state)
                self._timeline.post(now, ServerEvent(checked))
            case events.CloseRound():
                self._close(command)
            case events.RollBack():
                self._timeline.post(now, ServerEvent(self._coordinator.rollback.undo(command)))
            case events.Note():
                self._reporter.note(command)
            case events.RecordStrike(device, number, why):
                self._coordinator.strike(device, number, why)
            case events.RecordDelivery(delivery):
                self._tally.add_delivery(delivery)
            case events.EndRun():
                self._end = command
            case _:
                raise AssertionError(f"no command of a simulation: {command}")

    def _send(self, device: DeviceEdge, message: messages.Message) -> None:
        assert isinstance(message, messages.FromServer)
        self._tally.count_sent(device.device.name, len(messages.encode_message(message)))
        if isinstance(message, messages.Task):
            lay_out(message, self._coordinator.storage.store, self._around.store)
        arrives = self._timeline.now + device.latency_s
        self._timeline.post(arrives, MessageToDevice(device.device.name, message))

    # --- the coordinator ---
    def _plan(self, command: events.PlanRound) -> events.RoundPlanned:
        # A buffered round has any number of plannings and begins when the previous one closes.
        if command.wanted is None or command.attempt == 1:
            self._tally.begin_round()
        self._forget_old_blobs()
        with self._coordinator.context.durations.time_block("planning"):
            planned = self._coordinator.planner.plan(command)
        if not command.deliver and (self._export or self._federation.rules.deliver):
            self._coordinator.early_graphs.begin()
        return planned

    def _forget_old_blobs(self) -> None:
        """Remove devices' blobs that are no longer needed, except new ones of running jobs."""
        store = self._around.store
        in_use = {digest for device in self._devices.values() for digest in device.needed_blobs()}
        if any(device.busy for device in self._devices.values()):
            for digest in self._seen - in_use:
                store.blob_path(digest).unlink(missing_ok=True)
        else:
            store.keep_only(frozenset(in_use))
        self._seen = in_use

    def _close(self, command: events.CloseRound) -> None:
        """Aggregate; the round closes when the last acknowledgements have reached their devices."""
        now = self._timeline.now
        uplink, downlink, seconds = self._tally.round_figures()
        with self._coordinator.context.durations.time_block("closing"):
            figures = RoundFigures(uplink, downlink, seconds, virtual_time_s=now)
            record = self._coordinator.aggregator.close(command, figures)
        self._tally.begin_round()
        self._report_records()
        self._timeline.post(now + self._latency_s, ServerEvent(closed_event(record)))

    def _record_if_due(self) -> None:
        """Write the line of a round whose test has ended during the next one."""
        if self._coordinator.recorder.is_due:
            self._coordinator.recorder.record_round()
            self._report_records()

    def _report_records(self) -> None:
        for record in self._coordinator.recorder.take():
            self._reporter.report_closed(record)
            self._reporter.show()

    def _on_closed(self, closed: events.RoundClosed) -> None:
        if self._federation.rules.buffering is None:
            self._federation, commands = closing.report_findings(self._federation, closed)
            for command in commands:
                self._do(command)
            boundary = self._boundary(closed.round)
            write_boundary(self._coordinator.storage.folder.path, boundary, self._tally)
            self._continue(boundary, diverged=closed.diverged)
        else:
            self._step(closed)

    # --- between rounds ---
    def _boundary(self, closed: int) -> Boundary:
        devices = {name: device.state() for name, device in self._devices.items()}
        return Boundary(self._federation.run, closed, self._federation.attempt, self._timeline.now, devices)

    def _continue(self, boundary: Boundary, *, diverged: bool = False) -> None:
        """Continue after the closed round, from the boundary alone."""
        self._timeline.clear()
        self._ticks.clear()
        fleet = {}
        for name, state in boundary.devices.items():
            edge = self._devices[name]
            edge.restore(state)
            self._timeline.post(edge.next_link_change(), LinkChanged(name))
            self._timeline.post(edge.next_arrival(), DataArrived(name))
            if state.number:
                fleet[name] = Device(
                    name,
                    state.number,
                    edge.profile,
                    edge.data,
                    state.lost_at,
                    stated_labels=edge.device.labels,
                    can=capabilities.ALL,
                )
        self._federation = replace(
            machine.Federation(
                self._federation.name,
                boundary.run,
                self._federation.rules,
                columns=self._federation.columns,
                classes=self._federation.classes,
            ),
            phase=machine.Phase.CLOSING,
            round=boundary.round,
            attempt=boundary.attempt,
            fleet=Fleet(fleet, most=max(MAX_DEVICES, len(self._devices))).with_membership(
                self._federation.fleet.membership
            ),
            reputations=self._federation.reputations,
            undone=self._federation.undone,
        )
        self._step(events.RoundClosed(boundary.round, diverged))

    # --- display ---
    def _look(self) -> Moment:
        now, elapsed = self._timeline.now, time.monotonic() - self._reporter.began
        simulated = {"elapsed_s": elapsed, "virtual_s": now, "left_s": self._left_s(elapsed)}
        return Moment(self._federation, now, queues={"inbox": len(self._timeline)}, simulated=simulated)

    def _left_s(self, elapsed: float) -> float | None:
        """Estimated seconds left, from the rounds that this process has closed."""
        if self._federation.rules.endless:
            return None
        done = len(self._tally.history) - self._first_round + 1
        left = self._federation.rules.rounds - len(self._tally.history)
        return elapsed / done * left if done > 0 else None

    def _export_tiers(self, end: events.EndRun) -> Mapping[int, Path]:
        wanted = end.outcome == "finished" and self._export
        return self._coordinator.exporter.export_tiers() if wanted else {}


def _reason(error: Exception) -> str:
    if disk.disk_has_failed(error):
        return f"the disk is full or failing: {disk.in_words(error)}"
    return f"{type(error).__name__}: {error}"


def _rules(config: Config, devices: Mapping[str, DeviceEdge]) -> machine.RoundRules:
    """The configured rules without strikes; devices that are offline at the start are not waited for."""
    check_chosen(config, [edge.device for edge in devices.values()])
    rules, membership = make_rules(config), make_membership(config)
    meant = [edge for name, edge in devices.items() if membership.admits(name, edge.device.labels)]
    there = sum(device.is_there() for device in meant)
    start = max(1, min(rules.start_clients, there))
    return replace(rules, start_clients=start, reputation=reputation.ReputationRules(after=0))
