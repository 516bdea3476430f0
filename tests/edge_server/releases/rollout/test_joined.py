"""The rollout and its devices' trials joined in memory, with losses, doubles, restarts on both sides."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from edge_client.agent.rollout import trial as device_machine
from edge_client.agent.rollout.events import (
    Compare,
    Compared,
    Comparison,
    DiscardFiles,
    Offered,
    Recheck,
    Rechecked,
    RollBack,
    RolledBack,
    SendRolloutMessage,
    Switch,
    Switched,
    TrialRestored,
    Withdrawn,
)
from edge_client.agent.rollout.state import TrialState
from edge_client.agent.session.events import BlobChecked, ChunkArrived, Connected, Tick
from edge_client.transport.chunk_transfer import VerifyBlob, WriteChunk
from edge_server.releases.registry.registry import Registry
from edge_server.releases.rollout import events as server_events
from edge_server.releases.rollout import machine as server_machine
from edge_server.releases.rollout.journal import RolloutJournal
from edge_server.releases.rollout.rules import RolloutRules
from edge_server.releases.rollout.state import Rollout, RolloutPhase
from schemas.messages import ModelOffer, ModelWithdrawal
from schemas.messages.rollout_terms import ModelMeasurement, TrialTerms
from schemas.tensors.chunks import CHUNK_BYTES, Chunk
from tests.edge_server.releases.rollout.fleet import FEDERATION, FILES, VERSION, birth

OLD, GOOD, BAD = (ModelMeasurement(examples=100, accuracy=x, latency_ms=1.0) for x in (0.9, 0.92, 0.5))
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
    """A device: its machine, what it serves, whether it ever served the new model."""

    name: str
    before: Comparison
    after: Comparison
    trials: TrialState = field(init=False)
    new: bool = False
    ever: bool = False

    def __post_init__(self) -> None:
        self.trials = TrialState(FEDERATION, self.name, connected=True)

    def do(self, event: Any, now: float) -> list[Any]:
        """Step, carry out, and return what it says."""
        self.trials, commands = device_machine.step(self.trials, event, now)
        said: list[Any] = []
        for command in commands:
            match command:
                case SendRolloutMessage(message):
                    said.append(message)
                case VerifyBlob(ref):
                    said += self.do(BlobChecked(ref.digest, sound=True), now)
                case Compare(offer):
                    said += self.do(Compared(offer.rollout, self.before), now)
                case Switch():
                    self.new = self.ever = True
                    said += self.do(Switched(), now)
                case Recheck(offer):
                    serving = offer.blob.digest if self.new else None
                    said += self.do(Rechecked(offer.rollout, self.after, serving), now)
                case RollBack():
                    self.new = False
                    said += self.do(RolledBack(), now)
                case WriteChunk() | DiscardFiles():
                    pass
        return said

    def restart(self, now: float) -> list[Any]:
        """The process dies; the next one reads what was noted."""
        trial = self.trials.trial
        self.trials = TrialState(FEDERATION, self.name, connected=True)
        return [] if trial is None else self.do(TrialRestored(trial), now)


class Joined:
    """Both sides, a network that loses and doubles, and a journal on disk."""

    def __init__(self, boards: list[Board], folder: Path, rng: random.Random) -> None:
        self.boards, self.rng, self.now = {board.name: board for board in boards}, rng, 0.0
        self.journal = RolloutJournal(Registry(folder))
        self.rollout = Rollout("r-1", VERSION, FEDERATION, RULES, FILES)
        self.journal.begin(self.rollout)
        self.came_up()

    def came_up(self) -> None:
        """The server is connected, and the broker tells it of everybody."""
        self.server(server_events.Connected(CHUNK_BYTES))
        for name in self.boards:
            self.server(server_events.MessageReceived(birth(name)))

    def restart_server(self) -> None:
        """The server dies; the next one reads the journal."""
        self.rollout = self.journal.load("r-1", FILES, now=self.now)
        self.came_up()

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
                self.heard(board.do(ChunkArrived(Chunk(command.ref.digest[:16], index, data)), self.now))
        elif isinstance(command.message, ModelOffer):
            known = board.trials.trial
            same = known is not None and known.offer.rollout == command.message.rollout
            serving = command.message.blob.digest if board.new and not same else None
            self.heard(board.do(Offered(command.message, serving=serving), self.now))
        elif isinstance(command.message, ModelWithdrawal):
            self.heard(board.do(Withdrawn(command.message), self.now))

    def heard(self, said: list[Any]) -> None:
        for message in said:
            for _ in range(self.copies()):
                self.server(server_events.MessageReceived(message))

    def copies(self) -> int:
        """A message is lost, comes once, or comes twice."""
        return self.rng.choices((0, 1, 2), weights=(2, 6, 2))[0]

    def to_the_end(self, *, seconds: int = 2000) -> Rollout:
        for _ in range(seconds):
            if self.rollout.over:
                return self.rollout
            self.now += 1.0
            if self.rng.random() < 0.02:
                self.restart_server()
            for board in self.boards.values():
                restarts = board.restart(self.now) if self.rng.random() < 0.005 else []
                self.heard([*restarts, *board.do(Tick(), self.now)])
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
    assert world.to_the_end().phase is RolloutPhase.FINISHED
    assert all(board.new for board in world.boards.values())


@pytest.mark.parametrize("seed", range(3))
def test_a_model_that_is_found_bad_after_the_switch_reaches_the_canary_and_nobody_keeps_it(
    tmp_path: Path, seed: int
) -> None:
    world = joined(tmp_path, seed, lambda _: (BETTER, WORSE))
    ended = world.to_the_end()
    assert ended.phase is RolloutPhase.STOPPED
    canary = {target.device for target in ended.group(0)}
    assert {name for name, board in world.boards.items() if board.ever} <= canary
    assert not any(board.new for board in world.boards.values())


@pytest.mark.parametrize("seed", range(3))
def test_a_model_that_is_found_bad_in_the_comparison_is_never_in_use(tmp_path: Path, seed: int) -> None:
    world = joined(tmp_path, seed, lambda _: (WORSE, WORSE))
    assert world.to_the_end().phase is RolloutPhase.STOPPED
    assert not any(board.ever for board in world.boards.values())


def test_a_model_that_is_bad_for_a_later_group_alone_is_taken_from_everybody(tmp_path: Path) -> None:
    first = joined(tmp_path, 0, lambda _: (BETTER, BETTER)).to_the_end()
    canary = {target.device for target in first.group(0)}
    world = joined(tmp_path, 1, lambda name: (BETTER, BETTER if name in canary else WORSE))
    assert world.to_the_end().phase is RolloutPhase.STOPPED
    assert all(world.boards[name].ever for name in canary)
    assert not any(board.new for board in world.boards.values())
