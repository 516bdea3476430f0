"""Masked rounds after a device or the server was killed and restarted."""

from contextlib import closing
from pathlib import Path

from edge_client.agent.session import events
from edge_client.agent.session.machine import Session, SessionPhase, step
from edge_server.coordinator.tasks.masking import cohort_update
from edge_server.rounds import machine
from edge_server.rounds.events import Assignment, CloseRound, PlanRound, Tick
from edge_server.rounds.state import Phase as ServerPhase
from edge_server.rounds.state import RoundRules
from edge_server.security.secure_aggregation.protocol import COHORT
from edge_server.storage.journal import Journal
from edge_server.storage.journal_reader import JournalReader
from edge_server.storage.recovery import Recovered, recover
from edge_server.strategy.aggregation.updates import ClientUpdate
from schemas.errors import Reason
from schemas.messages import TaskReply, Update
from schemas.submodel import SubModelSpec
from tests.edge_server.security.secure_aggregation.cohorts import task_of, terms_of
from tests.schemas.examples import MESSAGES_BY_KIND

WHOLE = SubModelSpec()
TASK = task_of(terms_of((WHOLE,)), WHOLE)
HELD = frozenset(ref.digest for ref in TASK.blobs.values())
RULES = RoundRules(rounds=3, rejoin_s=15.0)


def device() -> Session:
    session, _ = step(Session(TASK.federation, "a", held=HELD), events.Connected(), 0.0)
    return session


def with_keys() -> Session:
    """A device that has drawn its keys for the task."""
    session, commands = step(device(), events.Received(TASK), 0.0)
    assert events.DrawEntropy(TASK) in commands
    session, _ = step(session, events.EntropyDrawn(TASK, bytes(32)), 0.0)
    return session


def test_a_restarted_device_without_its_keys_declines_the_rest_of_the_round():
    memory = with_keys().snapshot
    restored, commands = step(device(), events.SessionRestored(memory, {}), 1.0)
    assert restored.phase is SessionPhase.IDLE
    assert commands == []
    again = TASK.model_copy(update={"attempt": TASK.attempt + 1})
    for offered in (TASK, again):
        _, (answer,) = step(restored, events.Received(offered), 2.0)
        assert isinstance(answer, events.SendMessage)
        assert isinstance(answer.message, TaskReply)
        assert (answer.message.accepted, answer.message.reason) == (False, Reason.ALREADY_COUNTED)
    following = again.model_copy(update={"round": TASK.round + 1})
    assert events.DrawEntropy(following) in step(restored, events.Received(following), 3.0)[1]


def test_a_restarted_device_that_never_had_keys_may_begin():
    memory = step(device(), events.Received(TASK), 0.0)[0].snapshot
    restored, _ = step(device(), events.SessionRestored(memory, {}), 1.0)
    assert events.DrawEntropy(TASK) in step(restored, events.Received(TASK), 2.0)[1]


def cut_off(folder: Path, *, opened: bool) -> Recovered:
    """The recovery of a server that died in a masked round, before its sum was opened or right after."""
    with closing(Journal(folder / "journal.sqlite")) as journal:
        journal.begun(TASK.run, TASK.federation)
        journal.write_planning(TASK.attempt, 1, {name: Assignment(TASK, 900) for name in "abc"}, needed=3)
        if opened:
            example = MESSAGES_BY_KIND["update"]
            assert isinstance(example, Update)
            own = example.model_copy(update={"run": TASK.run, "round": 1, "attempt": TASK.attempt})
            total = ClientUpdate(COHORT, WHOLE, {}, 30)
            journal.write_examined(cohort_update(total, example.blob, own), reason=None)
    with closing(JournalReader(folder / "journal.sqlite")) as reader:
        recovered = recover(reader, RULES, TASK.federation, now=100.0)
    assert recovered is not None
    return recovered


def test_a_restarted_server_without_an_opened_sum_plans_the_round_again(tmp_path):
    federation = cut_off(tmp_path, opened=False).federation
    assert (federation.phase, len(federation.participants)) == (ServerPhase.STARTING, 0)
    waiting, _ = machine.step(federation, Tick(), 116.0)
    assert (waiting.phase, waiting.round) == (ServerPhase.WAITING, 1)


def test_an_opened_sum_is_not_requested_again(tmp_path):
    federation = cut_off(tmp_path, opened=True).federation
    closing_, commands = machine.step(federation, Tick(), 101.0)
    (close,) = [command for command in commands if isinstance(command, CloseRound)]
    assert not any(isinstance(command, PlanRound) for command in commands)
    assert closing_.phase is ServerPhase.CLOSING
    assert {name: update.metrics.examples for name, update in close.updates.items()} == {COHORT: 30}
