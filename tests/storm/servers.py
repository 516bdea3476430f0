"""The simulated server, alone or with a lease, and the standby that takes over from it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_server.coordinator.coordinator import assemble
from edge_server.coordinator.round_rules import make_rules
from edge_server.coordinator.run_start import open_run, read_run_and_epoch
from edge_server.coordinator.server import Server
from edge_server.coordinator.standby.replica_copy import mark_as_copy, was_copy
from edge_server.coordinator.standby.standby_status import STATUS
from edge_server.coordinator.standby.takeover import Standby
from edge_server.coordinator.standby.writing_right import Suspended
from edge_server.rounds.events import EndRun
from edge_server.storage.disk import disk_has_failed
from edge_server.storage.records import Summary
from edge_server.storage.run_folder import RunFolder
from edge_server.transport.lease.keeper import DECIDED, UNREACHABLE_S, LeaseKeeper
from schemas.messages import LeaseHolder
from schemas.topics import standby_topic
from tests.storm.faults import RUN
from tests.storm.processes import ADDRESS, FEDERATION, Process, config_of

if TYPE_CHECKING:
    from tests.storm.world import World

LEASE_TICK_S = 0.25


class ServerProcess(Process):
    """The server, from its start or from what an earlier process has left; with a lease for a standby."""

    def __init__(self, world: "World", name: str, run: str = RUN) -> None:
        super().__init__(world, name)
        self.run = run
        self.keeper: LeaseKeeper | None = None
        self.deadly: int | None = None
        self._noted = False
        self._began, self._lease_at = world.timeline.now, 0.0

    @property
    def out(self) -> Path:
        """The run folder."""
        return Path(self.machine.root) / self.run

    def boot(self) -> None:
        if RunFolder(self.out).has_ended:
            # The command says so and ends.
            summary = Summary.model_validate_json((self.out / "summary.json").read_bytes())
            detail = "given up after" if summary.outcome == "failed" else ""
            self.world.finished(self, summary.outcome, detail)
        elif self.world.scenario.standby:
            self.keeper = self._look_for_lease(follows=False)
            self._wait_for_tick()
        else:
            self.serve()

    def _look_for_lease(self, *, follows: bool) -> LeaseKeeper:
        run, epoch = read_run_and_epoch(self.out)
        me = LeaseHolder(
            instance=f"{self.world.draw.getrandbits(64):016x}",
            host=self.name,
            machine=self.name,
            pid=1,
            ticks=0,
            folder=f"/{self.name}/{self.run}",
            since=self.world.time.time(),
        )
        had_standby = not follows and (self.out / STATUS).exists()
        more: dict[str, Any] = {"follows": follows, "had_standby": had_standby}
        return LeaseKeeper(ADDRESS, FEDERATION, me, first_epoch=epoch, run=run, **more).open()

    def serve(self) -> None:
        """Open the run and begin."""
        config = config_of(self.world.scenario)
        folder, recovered = open_run(self.out, config, make_rules(config), now=self.world.timeline.now)
        coordinator = assemble(
            config,
            recovered.federation.run if recovered else self.run,
            folder,
            resume=recovered.resumption if recovered else None,
            broadcasts=self.world.scenario.broadcast,
        )
        self.server = Server(ADDRESS, coordinator, None, recovered, self.keeper)  # type: ignore[arg-type]
        self.driver = self.server.driver
        self._note_start()
        self.server.begin()
        self._wait_for_tick()

    def _note_start(self) -> None:
        """The run is this server's once it may write: one that starts cut off may have an old folder."""
        if not self._noted and (self.keeper is None or self.keeper.holds()):
            self._noted = True
            self.world.server_started(self)

    def turn(self) -> None:
        self.keep_lease()
        if self.booted:
            self._note_start()
            self._serve_on()
        elif self.keeper is not None and self._lease_is_decided(self.keeper):
            self.keeper.check()  # what `await_start` does when it has waited
            self.serve()

    def keep_lease(self) -> None:
        """What the thread of the lease does."""
        if self.keeper is not None:
            self._lease_at = self.world.timeline.now + LEASE_TICK_S
            self.keeper.loop.turn()

    def _lease_is_decided(self, keeper: LeaseKeeper) -> bool:
        late = self.world.timeline.now >= self._began + UNREACHABLE_S and not keeper.state.connected
        return late or isinstance(keeper.state.phase, DECIDED)

    def _serve_on(self) -> None:
        try:
            self.server.loop.turn()
        except Exception as error:
            if disk_has_failed(error):
                raise Suspended("the disk", failed=True) from error
            raise
        if self.driver.end is not None and self.server.is_over:
            self._finish(self.driver.end)

    def _finish(self, end: EndRun) -> None:
        """The run is over: write its summary."""
        self.server.close()
        self.server.record_last_round()
        summary = self.server.reporter.finish(end, self.server.jobs.exported_files)
        if self.keeper is not None:
            self.keeper.close(over=True)
        self.world.finished(self, summary.outcome, end.detail)

    def close(self) -> None:
        if self.booted:
            self.server.close()
        if self.keeper is not None and not self.keeper.ended:
            self.keeper.close(over=False)

    @property
    def booted(self) -> bool:
        return hasattr(self, "driver")

    @property
    def waiting(self) -> int:
        events = 0 if self.keeper is None else self.keeper.loop.inbox.qsize()
        if self.booted:
            held = self.keeper is None or self.keeper.holds()
            events += self.server.inbox.qsize() + (len(self.server.loop.inbox.waiting) if held else 0)
        return events

    @property
    def next_tick(self) -> float:
        ticks = [self.server.loop.next_tick] if self.booted and self.keeper is None else []
        return min([*ticks, *([self._lease_at] if self.keeper is not None else [])], default=0.0)


class StandbyProcess(ServerProcess):
    """A standby in a folder of its own, and the server that it becomes."""

    standby: Standby | None = None

    def boot(self) -> None:
        if RunFolder(self.out).has_ended or was_copy(self.out):
            super().boot()
            return
        mark_as_copy(self.out, FEDERATION)
        self.keeper = self._look_for_lease(follows=True)
        self.standby = Standby(
            FEDERATION,
            self.out,
            self.keeper,
            check=lambda run: None,
            goes_on=lambda run: False,
            say=lambda words: None,
        )
        topics = (standby_topic(FEDERATION, "entry"), standby_topic(FEDERATION, "chunk"))
        self.keeper.talk(frozenset(map(str, topics)), self.standby.loop.inbox)
        self._wait_for_tick()

    def turn(self) -> None:
        if self.standby is None:
            super().turn()
            return
        self.keep_lease()
        assert self.keeper is not None
        self.standby.loop.turn()
        end = self.standby.end
        if end is not None:
            self.keeper.talk(frozenset(), None)
        if end == "taken over":
            self.standby.take_over()
            self.standby = None
            self.serve()
        elif end is not None:
            self.world.leave(self)

    @property
    def waiting(self) -> int:
        return super().waiting + (0 if self.standby is None else self.standby.loop.inbox.qsize())
