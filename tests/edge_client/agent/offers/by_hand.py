"""Trials of offers by hand: the machine, its clock and the commands that it has returned."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from edge_client.agent.client_update.installation import ReleaseState
from edge_client.agent.offers import trial as offers
from edge_client.agent.offers.machine import step
from edge_client.agent.rollout.trial import Comparison, ModelState
from edge_client.agent.session import events
from schemas.messages import ClientOffer, ClientWithdrawal, ModelOffer, ModelWithdrawal
from schemas.messages.client_update import UpdateCause, UpdateStage, UpdateTerms
from schemas.messages.rollout import Cause, Stage, TrialTerms
from schemas.tensors.chunks import BlobRef, Chunk, digest_of
from tests.edge_server.releases.rollout.measured import measured

DATA = b"model" * 20_000
REF = BlobRef(digest=digest_of(DATA), size=len(DATA), chunk_bytes=65_536)
TO = {"federation": "home", "device": "pi", "rollout": "r-1", "version": "0.2.0"}
OLD, GOOD, BAD = (measured(x) for x in (0.9, 0.92, 0.5))
BETTER = Comparison(OLD, GOOD, lost=1, won=3)


@dataclass
class Device:
    """A device with one offer; `works` are what it does before it switches, each with its result."""

    offer: ClassVar[Any]
    withdrawal: ClassVar[Any]
    works: ClassVar[tuple[offers.Worked, ...]]
    switched: ClassVar[offers.Switched] = offers.Switched()
    stages: ClassVar[Any]
    causes: ClassVar[Any]

    now: float = 0.0
    state: Any = None
    done: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state = self.fresh()

    def fresh(self, **more: Any) -> offers.TrialState:
        """The state of a process without a trial."""
        raise NotImplementedError

    def do(self, event: offers.Event) -> list[Any]:
        """Make one step and return its commands without the messages."""
        self.state, commands = step(self.state, event, self.now)
        self.done += commands
        return [command for command in commands if not isinstance(command, events.SendMessage)]

    def fetch(self) -> list[Any]:
        """Receive the offer and every chunk of the file."""
        self.do(offers.Offered(self.offer))
        for index in range(REF.chunks):
            data = DATA[index * REF.chunk_bytes :][: REF.chunk_size(index)]
            self.do(events.ChunkArrived(Chunk(REF.digest[:16], index, data)))
        return self.do(events.BlobChecked(REF.digest, sound=True))

    def work(self) -> list[Any]:
        """Fetch the file, and do all that comes before the switch."""
        commands = self.fetch()
        for worked in self.works:
            assert commands == [worked.work]
            commands = self.do(worked)
        return commands

    @property
    def trial(self) -> Any:
        assert self.state.trial is not None
        return self.state.trial

    @property
    def messages(self) -> list[Any]:
        """The messages sent so far."""
        return [command.message for command in self.done if isinstance(command, events.SendMessage)]

    @property
    def reports(self) -> list[Any]:
        return [message for message in self.messages if message.kind.endswith("-report")]


@dataclass
class ModelDevice(Device):
    offer: ClassVar = ModelOffer(**TO, tier=1, blob=REF, terms=TrialTerms(watch_s=10.0))
    withdrawal: ClassVar = ModelWithdrawal(**TO, detail="by hand")
    works: ClassVar = (offers.Worked(offers.Work(offer, Stage.COMPARED), BETTER),)
    stages: ClassVar = Stage
    causes: ClassVar = Cause

    def fresh(self, **more: Any) -> ModelState:
        return ModelState("home", "pi", **{"connected": True, **more})


@dataclass
class ReleaseDevice(Device):
    offer: ClassVar = ClientOffer(**TO, blob=REF, terms=UpdateTerms(watch_s=60.0, connect_s=20.0))
    withdrawal: ClassVar = ClientWithdrawal(**TO, detail="by hand")
    works: ClassVar = (
        offers.Worked(offers.Work(offer, UpdateStage.INSTALLED)),
        offers.Worked(offers.Work(offer, UpdateStage.CHECKED)),
    )
    switched: ClassVar = offers.Switched({"slot": "b", "former": "a"})
    stages: ClassVar = UpdateStage
    causes: ClassVar = UpdateCause

    def fresh(self, **more: Any) -> ReleaseState:
        return ReleaseState("home", "pi", **{"version": "0.1.0", "connected": True, **more})
