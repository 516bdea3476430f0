"""The federation under one seed: processes, broker, disks and clocks, and the faults that befall them."""

import logging
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from edge_server.coordinator.standby.writing_right import Deposed, Suspended
from edge_server.storage.disk import disk_has_failed
from schemas.errors import ConfigError, EdgeError
from tests.storm import seams
from tests.storm.aggregators import InlineAggregator
from tests.storm.broker import Broker, Client, Weather
from tests.storm.disk import Disks, Killed
from tests.storm.faults import BROKER, NEXT_RUN, SERVER, STANDBY, Fault, Scenario
from tests.storm.invariants import Violation, Watch
from tests.storm.processes import DeviceProcess, Process, assemble_agent
from tests.storm.seeds import broker_of, far_link
from tests.storm.servers import ServerProcess, StandbyProcess
from tests.storm.site_invariants import SiteWatch
from tests.storm.sites import GatewayProcess
from tests.storm.timeline import SimulatedTime, Timeline

IN_MEMORY = Path("/dev/shm")
RESTART_S = 2.0
"""Seconds until a supervisor starts a process again that has ended by itself."""
CRASH_AT_LAST_S = 10.0
"""A process that was to crash in a disk operation is killed after this time at the latest."""
PATIENCE_S = 300.0
"""Virtual seconds after the last fault within which the run must be over."""
SETTLING_S = 20.0
"""If a device does not know of the end this long after it, in virtual seconds, another run must reach it."""
AGAIN_S = 7.0
"""The same beside a standby, which has to come first."""
EXPECTED = ("was continued by another server", "is served already", "follows this server already")
SAME_NAME = "another device is called"
MAX_EVENTS = 30_000
WINDOWS = frozenset({"loss", "repeats", "reordering", "partition"})


@dataclass(frozen=True)
class Outcome:
    """What became of a seed: the `violation` of an invariant, or None; virtual seconds and events.

    `digest` is that of all messages that were published, with their times.
    """

    violation: str | None
    outcome: str
    seconds: float
    events: int
    digest: str = ""


class World:
    """One federation; `processes` are those that run, by name, `running` is the one whose turn it is.

    A further kind of process (a standby, a gateway, an aggregator) is an entry in `make`, and its death,
    pause or partition is that of any other name.
    """

    def __init__(self, scenario: Scenario, faults: Sequence[Fault], root: Path) -> None:
        self.scenario, self.faults = scenario, tuple(faults)
        self.timeline = Timeline()
        self.draw = random.Random(f"world {scenario.seed}")
        self.small_chunks = scenario.small_chunks
        self.disks = Disks(root)
        self.devices = scenario.names
        weather = Weather(self.timeline, random.Random(f"weather {scenario.seed}"))
        weather.faults = [fault for fault in faults if fault.kind in WINDOWS]
        self.broker = Broker(self.timeline, weather)
        self.brokers = {broker_of(site): Broker(self.timeline, weather) for site in scenario.gateways}
        self.brokers[BROKER] = self.broker
        self.make: dict[str, Callable[[], Process]] = {SERVER: partial(ServerProcess, self, SERVER)}
        if scenario.standby:
            self.make[STANDBY] = partial(StandbyProcess, self, STANDBY)
        self.make |= {site: partial(GatewayProcess, self, site) for site in scenario.gateways}
        self.make |= {name: partial(DeviceProcess, self, name) for name in self.devices}
        self.processes: dict[str, Process] = {}
        self.running: Process | None = None
        self.time = SimulatedTime(self.timeline, lambda: self.running.name if self.running else "")
        self._fates: dict[str, Fault] = {}
        self._at_closing: list[Fault] = []
        self.ended: str | None = None
        self.ended_at = 0.0
        self._next_run = self._next_run_over = False
        self.quiet_at = max((fault.over for fault in faults), default=0.0)
        self.watch, self.site_watch = Watch(self), SiteWatch(self)
        cuts = {fault.target for fault in faults if fault.kind == "power-cut"}
        for name in self.make:
            self.disks.add(name, loses_power=name in cuts)

    # --- the run ---
    def run(self) -> Outcome:
        """From the first process's start to the end, or to the first violation."""
        events = 0
        try:
            self._begin()
            while not self._is_over():
                self.timeline.next()()
                events += 1
                self.watch.after_event()
                if events > MAX_EVENTS * len(self.brokers):
                    raise Violation(f"more than {MAX_EVENTS} events per broker")
        except Violation as violation:
            return self._outcome(str(violation), events)
        return self._outcome(None, events)

    def _outcome(self, violation: str | None, events: int) -> Outcome:
        return Outcome(violation, self.ended or "", self.timeline.now, events, self.timeline.digest)

    def _begin(self) -> None:
        for name in self.make:
            # Devices start in no particular order, some of them before the server.
            self.timeline.post(self.draw.uniform(0, 0.5), partial(self.start, name))
        for fault in self.faults:
            self.timeline.post(fault.at, partial(self._befall, fault))

    def _is_over(self) -> bool:
        """Whether the run is over, and every device knows it or has taken part in the next one."""
        now, calm = self.timeline.now, max(self.ended_at, self.quiet_at)
        if self.ended is None or self._next_run:
            if now > calm + PATIENCE_S:
                raise Violation(f"stuck: {self.watch.where()}")
            return False
        if self._next_run_over or self.watch.devices_are_idle():
            return now > self.quiet_at
        if now > calm + SETTLING_S:
            # Nobody may be left who could say so: a broker forgets, a server is gone.
            self.watch.check_told()
            self._next_run = True
            self.make[SERVER] = partial(ServerProcess, self, SERVER, NEXT_RUN)
            self.start(SERVER)
        return False

    def finished(self, process: Process, outcome: str, detail: str) -> None:
        """A server has ended its run."""
        self._stop(process.name)
        if self._next_run:
            self._next_run, self._next_run_over = False, True
        elif self.ended is None:
            self.watch.ended(outcome, detail)
            self.ended, self.ended_at = outcome, self.timeline.now
            for name in {SERVER, STANDBY} & self.processes.keys():
                self._stop(name)

    def server_started(self, process: Process) -> None:
        """A server has read its folder."""
        if self.ended is None:
            self.watch.server_started(process)

    def leave(self, process: Process) -> None:
        """A standby has nothing to follow any more."""
        self._stop(process.name)

    def runs_here(self, holder: Any) -> bool | None:
        """Whether the holder of a lease runs on the machine of the running process; None on another."""
        if holder.machine != self._process().name:
            return None
        process: Any = self.processes.get(holder.machine)
        keeper = getattr(process, "keeper", None)
        return keeper is not None and keeper.state.me.instance == holder.instance

    # --- processes ---
    @contextmanager
    def _as(self, process: Process) -> Iterator[None]:
        before, self.running = self.running, process
        try:
            yield
        finally:
            self.running = before

    def start(self, name: str) -> None:
        """Start a process, unless it runs or the run is over."""
        over = name in (SERVER, STANDBY) and self.ended is not None and not self._next_run
        if name in self.processes or over:
            return
        process = self.processes[name] = self.make[name]()
        self.run_in(process, process.boot)

    def run_in(self, process: Process, do: Callable[[], None]) -> None:
        """Let a process do something; it may die of it."""
        try:
            with self._as(process):
                do()
        except Killed:
            self._die(process, self._fates.pop(process.name))
        except (Suspended, Deposed) as pause:
            self._end(process, pause)
        except Exception as error:
            if not self._is_excused(process, error):
                raise Violation(f"{process.name}: {type(error).__name__}: {error}") from error
            self._end(process, error)

    def _is_excused(self, process: Process, error: Exception) -> bool:
        """Whether a fault of the disk, or another server, explains that a process has ended."""
        if (
            self.scenario.standby
            and isinstance(error, ConfigError)
            and any(w in str(error) for w in EXPECTED)
        ):
            return True
        if self.scenario.gateways and isinstance(error, ConfigError) and SAME_NAME in str(error):
            # Births that two brokers repeat late, one after the other, look like those of two devices.
            return True
        reason = error.__cause__ if isinstance(error, EdgeError) and error.__cause__ else error
        from_disk = disk_has_failed(reason) or "(storm)" in str(error)
        return from_disk and (not isinstance(process, DeviceProcess) or not process.booted)

    def _end(self, process: Process, error: Exception) -> None:
        """A process ends by itself; its supervisor starts it again."""
        if process.booted or self.scenario.standby:
            try:
                with self._as(process):
                    process.close()
            except Killed:
                self._die(process, self._fates.pop(process.name))
                return
            except Exception as further:
                if not self._is_excused(process, further):
                    raise Violation(f"{process.name}: {type(further).__name__}: {further}") from further
        self._stop(process.name)
        pause = AGAIN_S if self.scenario.standby else RESTART_S
        self.timeline.post(pause, partial(self.start, process.name))

    def _stop(self, name: str) -> Process:
        process = self.processes.pop(name)
        process.alive = False
        for client in process.clients:
            client.die()
        process.machine.restart()
        return process

    def _die(self, process: Process, fate: Fault) -> None:
        """A process is killed, or its machine loses power."""
        if process.name not in self.processes:
            return
        process.machine.dead = True
        if fate.kind == "power-cut":
            process.machine.lose_power(self.draw)
        self._stop(process.name)
        self.timeline.post(fate.lasts, partial(self.start, process.name))

    # --- faults ---
    def _befall(self, fault: Fault) -> None:
        process = self._struck(fault)
        match fault.kind:
            case "broker-restart":
                self._restart_broker(self.brokers[fault.target], fault)
            case "clock-jump":
                self.time.jumps[fault.target] = self.time.jumps.get(fault.target, 0.0) + fault.size
            case "full-disk":
                machine = self.disks.machines[fault.target]
                machine.full = True
                self.timeline.post(fault.lasts, lambda: setattr(machine, "full", False))
            case "failed-sync":
                self.disks.machines[fault.target].fail_sync = int(fault.size)
            case "partition":
                self._cut_off(fault)
            case _ if process is not None:
                self._strike(process, fault)

    def _struck(self, fault: Fault) -> Process | None:
        """The process that a fault befalls, or whose link."""
        return self.processes.get(fault.target.partition("/")[0])

    def _strike(self, process: Process, fault: Fault) -> None:
        """A fault of a process that runs."""
        match fault.kind:
            case "crash" | "power-cut" if fault.size == 0:
                self._die(process, fault)
            case "crash" | "power-cut":
                self._doom(process, fault)
            case "closing-crash":
                self._at_closing.append(fault)
            case "pause":
                process.paused = True
                self._each_connection(process, "watch")
                self.timeline.post(fault.lasts, partial(self._go_on, process))
            case "cut":
                for client in process.clients:
                    if client.connection is not None and fault.target in (process.name, client.owner):
                        client.connection.reset()
            case "failed-task" if isinstance(process, DeviceProcess):
                process.fails += 1
            case "suspend" if isinstance(process, ServerProcess) and process.booted:
                process.server.suspend()
            case "aggregator-death" if isinstance(process, ServerProcess):
                process.deadly = int(fault.size)

    def _doom(self, process: Process, fault: Fault) -> None:
        """Let a process crash after some disk operations."""
        self._fates[process.name] = fault
        process.machine.crash_after = int(fault.size)
        self.timeline.post(CRASH_AT_LAST_S, partial(self._crash_at_last, process, fault))

    def round_closed(self) -> None:
        """The running process has closed a round in its journal."""
        process = self._process()
        for fault in [each for each in self._at_closing if each.target == process.name]:
            self._at_closing.remove(fault)
            self.quiet_at = max(self.quiet_at, self.timeline.now + CRASH_AT_LAST_S + fault.lasts)
            self._doom(process, fault)

    def _crash_at_last(self, process: Process, fault: Fault) -> None:
        if process.alive and self._fates.get(process.name) is fault:
            del self._fates[process.name]
            self._die(process, fault)

    def _go_on(self, process: Process) -> None:
        process.paused = False
        if process.alive:
            self._each_connection(process, "heal")
            process.wake()

    def _cut_off(self, fault: Fault) -> None:
        def heal() -> None:
            process = self._struck(fault)
            if process is not None:
                self._each_connection(process, "heal")

        process = self._struck(fault)
        if process is not None:
            self._each_connection(process, "watch")
        self.timeline.post(fault.lasts + 0.001, heal)

    def _each_connection(self, process: Process, what: str) -> None:
        for client in process.clients:
            if client.connection is not None:
                getattr(client.connection, what)()

    def _restart_broker(self, broker: Broker, fault: Fault) -> None:
        if broker.up:
            broker.stop(forgets=fault.size > 0)
            self.timeline.post(fault.lasts, broker.start)

    # --- what the stand-ins need ---
    def make_client(self, *args: Any, **more: Any) -> Client:
        """An MQTT client of the running process."""
        process = self._process()
        client = Client(*args, **more)
        client.broker, client.owner = self.broker, process.name
        client.route = partial(self._route, client, process)
        client.is_paused, client.is_dead = lambda: process.paused, lambda: not process.alive
        process.clients.append(client)
        return client

    def _route(self, client: Client, process: Process, host: str) -> None:
        """Connect a client to the broker of this host; a gateway's far link has faults of its own."""
        client.broker = self.brokers.get(host, self.broker)
        if isinstance(process, GatewayProcess) and host == process.upstream.host:
            client.owner = far_link(process.name)

    def make_aggregator(self, begin: Any) -> InlineAggregator:
        """An aggregator process of the running server."""
        process = self._process()
        assert isinstance(process, ServerProcess)
        return InlineAggregator(begin, parent=process)

    def make_queue(self) -> seams.InstantQueue:
        """An inbox of the running process."""
        return self._process().make_queue()

    def make_executor(self, *args: Any, **more: Any) -> seams.LaterExecutor:
        """A thread of the running process."""
        process = self._process()
        return seams.LaterExecutor(lambda do: process.later(self.draw.uniform(0.001, 0.1), do))

    def assemble_agent(self, settings: Any, data: Any, inbox: Any, **more: Any) -> Any:
        """The parts of the running device's agent."""
        process = self._process()
        assert isinstance(process, DeviceProcess)
        return assemble_agent(process, settings, data, inbox)

    def _process(self) -> Process:
        assert self.running is not None
        return self.running


@contextmanager
def quiet_logs() -> Iterator[None]:
    """No log lines: a storm has thousands of warnings."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def play(scenario: Scenario, faults: Sequence[Fault], *, logs: bool = False) -> Outcome:
    """Run one federation through its faults."""
    memory = IN_MEMORY if IN_MEMORY.is_dir() else None
    root = Path(tempfile.mkdtemp(prefix="storm-", dir=memory))
    try:
        with ExitStack() as stack:
            if not logs:
                stack.enter_context(quiet_logs())
            world = World(scenario, faults, root)
            stack.enter_context(seams.in_place(world))
            stack.enter_context(world.watch.in_place())
            stack.enter_context(world.site_watch.in_place())
            stack.enter_context(world.disks.in_place())
            return world.run()
    finally:
        shutil.rmtree(root, ignore_errors=True)
