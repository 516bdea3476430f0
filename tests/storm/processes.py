"""The simulated processes: the product's server and agents, driven event by event."""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edge_client.agent.agent import Agent
from edge_client.agent.announcer import Announcer, WorkTelemetry
from edge_client.agent.assembly import MessageIntake, Parts, SignaturePolicy, make_link
from edge_client.agent.eligibility.monitor import EligibilityMonitor
from edge_client.agent.presence import Presence
from edge_client.agent.server_contact import Messenger
from edge_client.agent.session_runner import SessionRunner
from edge_client.agent.settings import AgentSettings, TaskContext
from edge_client.agent.state_store import StateStore
from edge_client.agent.worker import Worker
from edge_client.data.dataset import LabelledData
from edge_client.data.local import LocalData
from edge_client.transport.broker_link import BrokerAddress
from edge_server.config.config import Config
from edge_server.config.load import load_config
from schemas.values import CapabilityProfile, Preprocessing
from tests.storm.faults import Scenario
from tests.storm.seams import InstantQueue
from tests.storm.seeds import broker_of
from tests.storm.training import BETA, EXAMPLES, do_task

if TYPE_CHECKING:
    from tests.storm.world import World

FEDERATION = "storm"
SHAPE = (1, 2, 2)
DEADLINE_S, SOON_S, REJOIN_S = 3600, 30, 6
TURN_S = 0.0005
WORK_S = (0.3, 4.0)
MOMENTUM = f'strategy.server-optimizer={{ name = "momentum", beta = {BETA} }}'
PACKED = ["zstd"]
MASKS = ("privacy.secure-aggregation=true", "privacy.min-holders=3", "privacy.masking-step-s=15")
NETWORK = "tests.storm.network:tiny"
ADDRESS = BrokerAddress("broker.invalid", 1883)


def address_of(site: str) -> BrokerAddress:
    """The broker of a site; that of the server without one."""
    return BrokerAddress(broker_of(site), 1883) if site else ADDRESS


class Process:
    """One process from its start to its end; `machine` is its disk."""

    def __init__(self, world: "World", name: str) -> None:
        self.world, self.name, self.machine = world, name, world.disks.machines[name]
        self.alive, self.paused = True, False
        self.clients: list[Any] = []
        self._due = False

    def boot(self) -> None:
        """Begin; whatever it raises ends the process."""
        raise NotImplementedError

    def turn(self) -> None:
        """Handle the clock and one event."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop in the middle of the run; only a server is ever stopped."""

    @property
    def booted(self) -> bool:
        """Whether the process has come as far as its loop."""
        raise NotImplementedError

    @property
    def waiting(self) -> int:
        """The number of events that wait."""
        raise NotImplementedError

    @property
    def next_tick(self) -> float:
        """When the process next looks at the clock."""
        raise NotImplementedError

    def wake(self) -> None:
        """An event has come: take a turn soon."""
        if not self._due:
            self._due = True
            self.world.timeline.post(TURN_S, self._take_turn)

    def _take_turn(self) -> None:
        self._due = False
        if not self.alive or self.paused:
            return
        self.world.run_in(self, self.turn)
        if self.alive and self.waiting:
            self.wake()
        elif self.alive:
            self._wait_for_tick()

    def _wait_for_tick(self) -> None:
        at = self.next_tick
        self.world.timeline.post(at - self.world.timeline.now, lambda: self._tick(at))

    def _tick(self, at: float) -> None:
        if self.alive and not self.paused and self.next_tick == at and not self._due:
            self.wake()

    def later(self, seconds: float, do: Callable[[], None]) -> None:
        """Do something in another thread of this process, unless the process has ended by then."""

        def begin() -> None:
            if self.alive and self.paused:
                self.later(0.5, do)
            elif self.alive:
                self.world.run_in(self, do)

        self.world.timeline.post(seconds, begin)

    def make_queue(self) -> InstantQueue:
        """An inbox of this process."""
        return InstantQueue(self.wake)


class DeviceProcess(Process):
    """A device's agent; `fails` is the number of tasks that fail next."""

    fails = 0

    def boot(self) -> None:
        settings = AgentSettings(
            FEDERATION,
            self.name,
            address_of(self.name.rpartition(".")[0]),
            Path(self.machine.root),
            source="storm",
            profile=CapabilityProfile(tier=1),
            keep_trying=True,
        )
        self.agent = Agent(settings, local_data())
        self.agent.link.open()
        self._wait_for_tick()

    def turn(self) -> None:
        self.agent.loop.turn()

    @property
    def booted(self) -> bool:
        return hasattr(self, "agent")

    @property
    def runner(self) -> SessionRunner:
        """What holds the session."""
        return self.agent.runner

    @property
    def waiting(self) -> int:
        return self.agent.inbox.qsize()

    @property
    def next_tick(self) -> float:
        return self.agent.loop.next_tick


class StormWorker(Worker):
    """Does its tasks later, in virtual time, by a tiny pure function."""

    process: DeviceProcess

    def begin(self, task: Any, job: Any) -> None:
        self.cancelled = cancelled = real_threading_event()
        seconds = self.process.world.draw.uniform(*WORK_S)
        self.process.later(seconds, lambda: None if cancelled.is_set() else self.run(task, job, cancelled))

    def work(self, task: Any, context: TaskContext, cancelled: Any) -> Any:
        if self.process.fails:
            self.process.fails -= 1
            raise ValueError("the task fails (storm)")
        world = self.process.world
        return do_task(task, context, world.draw.getrandbits(64), world.watch.trained)

    def warm_up(self) -> None:
        pass


def real_threading_event() -> Any:
    """An event that is never waited for."""
    import threading

    return threading.Event()


def assemble_agent(process: DeviceProcess, settings: AgentSettings, data: LocalData, inbox: Any) -> Parts:
    """The agent's parts, in order, as in `edge_client.agent.assembly`; no owner's rules, no rollouts."""
    state_store = StateStore(settings)
    context = TaskContext(
        settings.device,
        state_store.blobs,
        data,
        settings.state / "models",
        model_code=frozenset({NETWORK}),
        private=state_store.private,
        checkpoints=state_store.checkpoints,
    )
    policy = SignaturePolicy(settings.federation, settings.device, settings.state, None)
    worker = StormWorker(inbox, settings.trainers())
    worker.process = process
    presence = Presence(settings, data)
    link = make_link(settings, inbox, presence, None)
    messenger = Messenger(link, settings.federation, settings.device)
    monitor = EligibilityMonitor.of_board(settings.eligibility, cores=1, root=settings.state)
    announcer = Announcer(settings, presence, messenger, monitor)
    telemetry = WorkTelemetry(settings, presence, messenger, root=settings.state)
    runner = SessionRunner(settings, context, state_store, messenger, worker, inbox, telemetry)
    intake = MessageIntake(messenger, runner, policy, monitor, announcer, settings.veto)
    return Parts(link, runner, (announcer, telemetry, runner, intake))


@lru_cache(maxsize=1)
def local_data() -> LocalData:
    """The examples of every device."""
    images = np.zeros((EXAMPLES, *SHAPE), np.float32)
    data = LabelledData(images, np.arange(EXAMPLES) % 2, ("0", "1"), Preprocessing(), named=False)
    return LocalData(data, data)


@lru_cache(maxsize=1)
def config_of(scenario: Scenario) -> Config:
    """The federation file of a scenario."""
    needed = scenario.devices - scenario.spare
    size = scenario.size
    buffered = ["mode=buffered", f"buffer-size={size}", "max-staleness=2"] if size else []
    share = needed / scenario.devices
    over = [f"fraction={share}", f"over-select={1 / share}"] if scenario.spare else []
    return load_config(
        "fedavg",
        [
            *(f"federation.name={FEDERATION}", f"rounds={scenario.rounds}", f"num-clients={needed}"),
            *("min-clients=1", f"clients.start-clients={scenario.devices}", *buffered, *over),
            *(
                f"clients.deadline-s={SOON_S if scenario.impatient else DEADLINE_S}",
                f"clients.rejoin-s={REJOIN_S}",
            ),
            *(f"deliver={'force' if scenario.deliver else 'none'}", f"model.name={NETWORK}"),
            *(f"model.input-shape={list(SHAPE)}", "model.num-classes=2"),
            *(
                f"strategy.uplink={PACKED if scenario.packed else []}",
                f"strategy.downlink={['delta'] if scenario.changes else []}",
            ),
            *(
                f"federation.sites={list(scenario.gateways)}",
                f"federation.aggregators={scenario.aggregators}",
            ),
            *((MOMENTUM,) if scenario.momentum else ()),
            *(MASKS if scenario.masked else ()),
            *("firewall.quarantine-after=0",),
        ],
    )
