"""Rounds whose blobs bypass the broker, through an object store that can fail at every stage."""

import pytest

from edge_server.rounds.events import CheckUpdate, NotInObjectStore
from edge_server.rounds.machine import RoundRules
from edge_server.rounds.participant import Status
from tests.chunk_bits import chunks_of
from tests.edge_server.rounds.by_hand import chunks, of, request, started, update
from tests.edge_server.rounds.world_with_store import WorldWithStore

RULES = RoundRules(rounds=3, start_clients=3, quorum=1.0, rejoin_s=5.0, deadline_s=500.0)


def deposited(device: str):
    return update(device).model_copy(update={"deposited": True})


def asked_with(device: str, claim):
    """A run in which the device was offered a task and has sent this claim; with the resulting commands."""
    run = started(device, start_clients=1)
    run.plan(device)
    return run, run.hear(claim)


def test_a_deposited_update_is_checked_and_not_requested():
    run, commands = asked_with("a", deposited("a"))
    assert of(CheckUpdate, commands) == [CheckUpdate("a", deposited("a"))]
    assert request("a") not in commands
    assert run.status("a") is Status.CHECKING


def test_an_update_missing_from_the_store_is_requested_in_chunks():
    run, _ = asked_with("a", deposited("a"))
    commands = run.tell(NotInObjectStore("a", deposited("a").blob.digest))
    assert request("a") in commands
    assert run.status("a") is Status.UPLOADING
    # A repeated claim of the device changes nothing.
    assert run.hear(deposited("a")) == []
    assert [of(CheckUpdate, run.tell(chunk)) for chunk in chunks("a")][-1] == [
        CheckUpdate("a", deposited("a"))
    ]


def test_only_the_rest_of_an_incomplete_update_is_requested():
    run, _ = asked_with("a", deposited("a"))
    run.tell(NotInObjectStore("a", deposited("a").blob.digest, have=chunks_of(0b01)))
    receiving = run.federation.participants["a"].receiving
    assert receiving is not None
    assert receiving.have == chunks_of(0b01)


def test_a_failed_fetch_of_an_earlier_claim_is_ignored():
    run, _ = asked_with("a", deposited("a"))
    assert run.tell(NotInObjectStore("a", "0" * 64)) == []
    assert run.status("a") is Status.CHECKING


@pytest.mark.parametrize("failing", [0.0, 0.3, 1.0])
def test_every_round_closes_whatever_the_store_does(failing: float):
    for seed in range(5):
        world = WorldWithStore(3, RULES, failing=failing, seed=seed)
        world.run_fairly()
        assert world.outcome == "finished"
        assert [len(closed.updates) for closed in world.closed] == [3, 3, 3]
        if failing == 0.0:
            # Three devices in three rounds; all devices already have the delivered model of the last round.
            assert world.transferred == {"down": 9, "up": 9}
            assert all(counted.deposited for counted in world.counted())
        if failing == 1.0:
            assert world.transferred == {"down": 0, "up": 0}


def test_devices_that_fetch_from_the_store_do_not_listen_and_nothing_is_published():
    world = WorldWithStore(3, RULES, failing=0.0, shared=True)
    world.run_fairly()
    assert world.transferred == {"down": 9, "up": 9}
    # Chunks that the server has sent or published.
    assert world.egress == 0


def test_blobs_that_the_store_fails_to_deliver_are_published_or_requested():
    for seed in range(5):
        world = WorldWithStore(3, RULES, failing=0.5, shared=True, seed=seed)
        world.run_fairly()
        assert world.outcome == "finished"
        assert world.egress > 0


@pytest.mark.parametrize("seed", range(10))
def test_losses_deaths_and_store_failures_together_do_not_stop_the_run(seed: int):
    world = WorldWithStore(3, RULES, failing=0.3, seed=seed)
    for _ in range(300):
        fate = world.random.random()
        name = world.random.choice(sorted(world.nodes))
        if fate < 0.03:
            world.cut(name)
            world.connect(name)
        elif fate < 0.05:
            world.kill_and_remember(name)
            world.connect(name)
        elif fate < 0.2:
            world.finish_transfer(name)
        else:
            world.one_bad_turn(0.1)
    world.run_fairly()
    assert world.outcome == "finished"
    assert [closed.round for closed in world.closed] == [1, 2, 3]
