"""How the round machine continues from the state that a restarted server reads from its journal."""

from dataclasses import replace

from edge_client.transport.chunk_transfer import Receiving
from edge_server.rounds import events
from edge_server.rounds.fleet import Fleet
from edge_server.rounds.machine import Phase
from edge_server.rounds.participant import Participant, Status
from edge_server.rounds.participants import Participants
from edge_server.rounds.state import Federation, RoundRules
from schemas.errors import Reason
from schemas.messages import BlobRequest, Refusal
from schemas.tensors.chunks import ChunkSet
from tests.chunk_bits import chunks_of
from tests.edge_server.rounds.by_hand import NAME, RUN, STATE, Run, assignment, of, offers, update
from tests.edge_server.rounds.test_fleet import birth, death

REJOIN_S = 15.0


def restarted(*devices: str, phase: Phase = Phase.STARTING, **fields) -> Run:
    """A run restored from the journal; all these devices are considered lost."""
    fleet = Fleet()
    for name in devices:
        fleet = fleet.born(birth(name)).with_death(death(name), 0.0)
    rules = RoundRules(rounds=3, min_clients=1, quorum=1.0, rejoin_s=REJOIN_S)
    run = Run(
        Federation(NAME, RUN, rules, phase=phase, attempt=1, fleet=fleet, gather_until=REJOIN_S, **fields)
    )
    run.tell(events.Started())
    return run


def training(*devices: str, counted: tuple[str, ...] = ()) -> Run:
    """A restored run in round one; the updates of the devices in `counted` are accepted."""
    parts = [Participant(name, assignment(), deadline=600.0) for name in devices]
    done = [
        replace(part, status=Status.COUNTED, update=update(part.device)) if part.device in counted else part
        for part in parts
    ]
    return restarted(*devices, phase=Phase.TRAINING, participants=Participants.of(done))


def test_the_phase_is_announced_again():
    assert [command.message.phase for command in of(events.Announce, training("a").log)] == ["training"]
    assert [command.message.phase for command in of(events.Announce, restarted("a").log)] == ["waiting"]


def test_after_a_closed_round_the_server_waits_for_the_known_devices():
    run = restarted("a", "b")
    assert of(events.PlanRound, run.hear(birth("a")) + run.wait(1)) == []
    (plan,) = of(events.PlanRound, run.hear(birth("b")) + run.wait(1))
    assert (plan.round, plan.attempt) == (2, 2)
    assert [device.name for device in plan.devices] == ["a", "b"]


def test_the_server_waits_no_longer_than_rejoin_s():
    run = restarted("a", "b")
    run.hear(birth("a"))
    assert of(events.PlanRound, run.wait(REJOIN_S - 1)) == []
    (plan,) = of(events.PlanRound, run.wait(1) + run.wait(1))
    assert [device.name for device in plan.devices] == ["a"]


def test_a_device_without_an_accepted_update_is_offered_its_task_again_once_it_connects():
    run = training("a", "b", counted=("a",))
    assert offers(run.log) == []
    assert offers(run.hear(birth("b"))) == ["b"]
    assert offers(run.hear(birth("a"))) == []


def test_accepted_updates_close_the_round_without_being_sent_again():
    run = training("a", "b", counted=("a",))
    run.hear(birth("b"))
    (close,) = of(events.CloseRound, run.upload("b"))
    assert sorted(close.updates) == ["a", "b"]
    assert not any(
        isinstance(sent.message, BlobRequest) and sent.device == "a" for sent in of(events.Send, run.log)
    )


def test_stored_chunks_are_not_requested_again():
    run = training("a")
    run.hear(birth("a"))
    claim = update("a")
    commands = run.tell(events.MessageReceived(claim, have=chunks_of(0b001)))
    requests = [
        command.message for command in of(events.Send, commands) if isinstance(command.message, BlobRequest)
    ]
    assert [(request.first, request.count) for request in requests] == [(1, claim.blob.chunks - 1)]


def test_a_completely_stored_update_is_checked_at_once():
    run = training("a")
    run.hear(birth("a"))
    claim = update("a")
    whole = ChunkSet.first(claim.blob.chunks)
    assert Receiving(claim.blob, have=whole).complete
    assert events.CheckUpdate("a", claim) in run.tell(events.MessageReceived(claim, have=whole))


def test_an_accepted_update_that_was_damaged_is_sent_again():
    run = training("a", "b", counted=("a",))
    run.hear(birth("a"))
    run.hear(birth("b"))
    run.tell(events.BlobsLost(frozenset([update("a").blob.digest])))
    assert offers(run.wait(1)) == ["a"]
    run.upload("b")
    (close,) = of(events.CloseRound, run.upload("a"))
    assert sorted(close.updates) == ["a", "b"]


def test_a_round_that_needs_a_lost_blob_is_planned_again():
    run = training("a", "b")
    for name in "ab":
        run.hear(birth(name))
    run.tell(events.BlobsLost(frozenset([STATE.digest])))
    (plan,) = of(events.PlanRound, run.wait(60))
    assert (plan.round, [device.name for device in plan.devices]) == (1, ["a", "b"])


def test_a_task_blob_that_a_device_cannot_use_is_repaired():
    run = training("a")
    run.hear(birth("a"))
    refusal = {"federation": NAME, "device": "a", "reason": Reason.DIGEST_MISMATCH}
    assert of(events.RepairBlob, run.hear(Refusal(**refusal, digest=STATE.digest))) == [
        events.RepairBlob(STATE.digest)
    ]
    assert of(events.RepairBlob, run.hear(Refusal(**refusal, digest="0" * 64))) == []


def test_a_run_whose_end_devices_were_told_does_no_more_tasks_and_ends_once_they_are_back():
    parts = Participants.of([Participant("a", assignment(), deadline=600.0)])
    told = events.EndRun("finished", "the budget is spent")
    run = restarted("a", phase=Phase.DELIVERING, participants=parts, announced_end=told)
    assert of(events.Announce, run.log) == []
    commands = run.hear(birth("a", session=2))
    assert (offers(commands), of(events.EndRun, commands)) == ([], [told])
    assert [command.message.kind for command in of(events.Announce, commands)] == ["federation-end"]


def test_a_first_round_that_cannot_be_continued_is_planned_again():
    run = restarted("a", round=0)
    assert [command.message.round for command in of(events.Announce, run.log)] == [1]
    (plan,) = of(events.PlanRound, run.hear(birth("a", session=2)) + run.wait(1))
    assert (plan.round, plan.attempt, plan.deliver) == (1, 2, False)
