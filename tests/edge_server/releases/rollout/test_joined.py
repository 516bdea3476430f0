"""A rollout and its devices' trials connected in memory, with lost and duplicate messages and restarts."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from edge_client.agent.offers import machine as device_machine
from edge_client.agent.offers.trial import (
    CleanUp,
    Offered,
    Restored,
    RollBack,
    RolledBack,
    Switch,
    Switched,
    Withdrawn,
    Work,
    Worked,
)
from edge_client.agent.rollout.trial import Comparison, Look, ModelState
from edge_client.agent.session.events import BlobChecked, ChunkArrived, Connected, SendMessage, Tick
from edge_client.transport.chunk_transfer import VerifyBlob, WriteChunk
from edge_server.releases.registry.registry import Registry
from edge_server.releases.rollout import machine as server_machine
from edge_server.releases.rollout import state as server_events
from edge_server.releases.rollout.groups import MODELS
from edge_server.releases.rollout.journal import RolloutJournal
from edge_server.releases.rollout.state import Rollout, RolloutPhase, RolloutRules
from schemas.messages import ModelOffer, ModelWithdrawal
from schemas.messages.rollout import Stage, TrialTerms
from schemas.tensors.chunks import CHUNK_BYTES, Chunk
from tests.edge_server.releases.rollout.fleet import FEDERATION, FILES, VERSION, birth
from tests.edge_server.releases.rollout.measured import measured

OLD, GOOD, BAD = (measured(x) for x in (0.9, 0.92, 0.5))
BETTER, WORSE = Comparison(OLD, GOOD, 1, 3), Comparison(OLD, BAD, 41, 1)
RULES = RolloutRules(
    canary="2",
    groups=2,
    success=0.9,
    gather_s=3.0,
    away_s=300.0,
    silent_s=300.0,
    terms=TrialTerms(watch_s=5.0),
)
NAMES = tuple(f"pi-{number}" for number in range(8))


@dataclass
class Board:
    """A device with its trial machine: whether it serves, or ever served, the new model."""

    name: str
    before: Comparison
    after: Comparison
    trials: ModelState = field(init=False)
    serves_new: bool = False
    served_new: bool = False

    def __post_init__(self) -> None:
        self.trials = ModelState(FEDERATION, self.name, connected=True)

    def do(self, event: Any, now: float) -> list[Any]:
        """Make one step, execute its commands and return the sent messages."""
        self.trials, commands = device_machine.step(self.trials, event, now)
        sent: list[Any] = []
        for command in commands:
            match command:
                case SendMessage(message):
                    sent.append(message)
                case VerifyBlob(ref):
                    sent += self.do(BlobChecked(ref.digest, sound=True), now)
                case Work(goal=Stage.COMPARED):
                    sent += self.do(Worked(command, self.before), now)
                case Switch():
                    self.serves_new = self.served_new = True
                    sent += self.do(Switched(), now)
                case Work(offer, Stage.KEPT):
                    serving = offer.blob.digest if self.serves_new else None
                    sent += self.do(Worked(command, Look(self.after, serving)), now)
                case RollBack():
                    self.serves_new = False
                    sent += self.do(RolledBack(), now)
                case WriteChunk() | CleanUp():
                    pass
        return sent

    def restart(self, now: float) -> list[Any]:
        """Kill the process; the next one restores the recorded trial."""
        trial = self.trials.trial
        self.trials = ModelState(FEDERATION, self.name, connected=True)
        return [] if trial is None else self.do(Restored(trial), now)


class Joined:
    """Both sides, a network that loses and duplicates messages, and a journal on disk."""

    def __init__(self, boards: list[Board], folder: Path, rng: random.Random) -> None:
        self.boards, self.rng, self.now = {board.name: board for board in boards}, rng, 0.0
        self.journal = RolloutJournal(Registry(folder))
        self.rollout = Rollout("r-1", VERSION, FEDERATION, RULES, FILES, MODELS)
        self.journal.begin(self.rollout)
        self.announce_devices()

    def announce_devices(self) -> None:
        """Connect the server and deliver the births of all devices."""
        self.server(server_events.Connected(CHUNK_BYTES))
        for name in self.boards:
            self.server(server_events.MessageReceived(birth(name)))

    def restart_server(self) -> None:
        """Kill the server; the next one loads the journal."""
        self.rollout = self.journal.load_rollout("r-1", FILES, now=self.now, offering=MODELS)
        self.announce_devices()

    def server(self, event: Any) -> None:
        before = self.rollout
        self.rollout, commands = server_machine.step(before, event, self.now)
        self.journal.save(before, self.rollout)
        for command in commands:
            for _ in range(self.copies()):
                self.to_device(command)

    def to_device(self, command: Any) -> None:
        board = self.boards[command.device]
        if isinstance(command, server_events.SendChunks):
            for index in range(command.first, min(command.first + command.count, command.ref.chunks)):
                data = bytes(command.ref.chunk_size(index))
                self.to_server(board.do(ChunkArrived(Chunk(command.ref.digest[:16], index, data)), self.now))
        elif isinstance(command.message, ModelOffer):
            known = board.trials.trial
            same = known is not None and known.offer.rollout == command.message.rollout
            serving = command.message.blob.digest if board.serves_new and not same else None
            self.to_server(board.do(Offered(command.message, in_use=serving), self.now))
        elif isinstance(command.message, ModelWithdrawal):
            self.to_server(board.do(Withdrawn(command.message), self.now))

    def to_server(self, sent: list[Any]) -> None:
        for message in sent:
            for _ in range(self.copies()):
                self.server(server_events.MessageReceived(message))

    def copies(self) -> int:
        """How many copies of a message arrive: none, one or two."""
        return self.rng.choices((0, 1, 2), weights=(2, 6, 2))[0]

    def run_to_the_end(self, *, seconds: int = 2000) -> Rollout:
        for _ in range(seconds):
            if self.rollout.over:
                return self.rollout
            self.now += 1.0
            if self.rng.random() < 0.02:
                self.restart_server()
            for board in self.boards.values():
                restarts = board.restart(self.now) if self.rng.random() < 0.005 else []
                self.to_server([*restarts, *board.do(Tick(), self.now)])
            self.server(server_events.Tick())
        raise AssertionError(f"not over: {self.rollout}")


def joined(tmp_path: Path, seed: int, compare: Callable[[str], tuple[Comparison, Comparison]]) -> Joined:
    boards = [Board(name, *compare(name)) for name in NAMES]
    for board in boards:
        board.do(Connected(), 0.0)
    return Joined(boards, tmp_path / f"registry-{seed}", random.Random(seed))


@pytest.mark.parametrize("seed", range(3))
def test_a_good_model_reaches_every_device(tmp_path: Path, seed: int) -> None:
    world = joined(tmp_path, seed, lambda _: (BETTER, BETTER))
    assert world.run_to_the_end().phase is RolloutPhase.FINISHED
    assert all(board.serves_new for board in world.boards.values())


@pytest.mark.parametrize("seed", range(3))
def test_a_model_found_bad_after_the_switch_reaches_only_the_canary_and_is_rolled_back(
    tmp_path: Path, seed: int
) -> None:
    world = joined(tmp_path, seed, lambda _: (BETTER, WORSE))
    ended = world.run_to_the_end()
    assert ended.phase is RolloutPhase.STOPPED
    canary = {target.device for target in ended.group(0)}
    assert {name for name, board in world.boards.items() if board.served_new} <= canary
    assert not any(board.serves_new for board in world.boards.values())


@pytest.mark.parametrize("seed", range(3))
def test_a_model_found_bad_in_the_comparison_is_never_in_use(tmp_path: Path, seed: int) -> None:
    world = joined(tmp_path, seed, lambda _: (WORSE, WORSE))
    assert world.run_to_the_end().phase is RolloutPhase.STOPPED
    assert not any(board.served_new for board in world.boards.values())


def test_a_model_that_fails_only_in_a_later_group_is_withdrawn_from_all_devices(tmp_path: Path) -> None:
    first = joined(tmp_path, 0, lambda _: (BETTER, BETTER)).run_to_the_end()
    canary = {target.device for target in first.group(0)}
    world = joined(tmp_path, 1, lambda name: (BETTER, BETTER if name in canary else WORSE))
    assert world.run_to_the_end().phase is RolloutPhase.STOPPED
    assert all(world.boards[name].served_new for name in canary)
    assert not any(board.serves_new for board in world.boards.values())
