"""One holder at a time, whoever stops, is cut off or comes back."""

import random
from dataclasses import replace

import pytest

from edge_server.transport.lease import machine
from edge_server.transport.lease.phases import (
    Claim,
    Confirming,
    Held,
    LeaseLog,
    Looking,
    Lost,
    Settling,
    Taken,
)
from edge_server.transport.lease.state import GRACE_S, HOLD_S, SILENCE_S, Heard, LeaseState
from tests.edge_server.transport.lease.in_memory import Broker, claims, held, holder, synced, taken


def test_a_server_alone_holds_the_lease_at_once_and_keeps_it(broker: Broker) -> None:
    broker.add("a")
    assert broker.run(5, held(broker, "a")) < 0.5
    broker.run(60)
    assert broker.holders() == ["a"]
    assert broker.servers["a"].state.epoch == 1


def test_a_second_server_is_told_who_holds_it(broker: Broker) -> None:
    broker.add("a")
    broker.run(3)
    second = broker.add("b")
    assert broker.run(10, lambda: isinstance(second.state.phase, Taken)) < 2
    assert taken(second).by.holder.instance == "a"
    broker.run(10)
    assert broker.holders() == ["a"]


def test_of_two_that_start_together_one_gets_it(broker: Broker) -> None:
    for name in "abc":
        broker.add(name)
    broker.run(20)
    phases = sorted(type(server.state.phase).__name__ for server in broker.servers.values())
    assert phases == ["Held", "Taken", "Taken"]


def test_a_server_that_was_killed_starts_again_at_once_with_its_epoch(broker: Broker) -> None:
    broker.add("a", host="pi")
    broker.run(3)
    broker.kill("a")
    broker.add("again", host="pi")
    broker.servers["again"].state = LeaseState(
        broker.servers["a"].state.me.model_copy(update={"instance": "again"}), "home", connected=True
    )
    broker.connect("again")
    assert broker.run(10, held(broker, "again")) < 1.5
    assert broker.servers["again"].state.epoch == 1


def test_a_server_elsewhere_waits_until_the_dead_one_is_silent_for_long(broker: Broker) -> None:
    broker.add("a")
    broker.run(3)
    broker.kill("a")
    broker.add("b")
    assert SILENCE_S <= broker.run(20, held(broker, "b")) < SILENCE_S + 1.5
    assert broker.servers["b"].state.epoch == 2


def test_a_standby_follows_a_dead_server_after_the_grace(broker: Broker) -> None:
    synced(broker)
    broker.run(10)
    broker.kill("a")
    assert GRACE_S <= broker.run(20, held(broker, "b")) < GRACE_S + 1
    assert broker.servers["b"].state.epoch == 2


def test_a_paused_server_may_not_write_when_it_goes_on(broker: Broker) -> None:
    synced(broker)
    broker.servers["a"].paused = True
    assert broker.run(20, held(broker, "b")) <= SILENCE_S + 1
    assert broker.holders() == ["b"]
    broker.servers["a"].paused = False
    broker.run(1)
    lost = broker.servers["a"].state.phase
    assert isinstance(lost, Lost)
    assert lost.by.holder.instance == "b"
    broker.run(10)
    assert broker.holders() == ["b"]


def test_a_server_that_was_cut_off_holds_for_less_time_than_others_wait(broker: Broker) -> None:
    synced(broker)
    broker.cut("a", will=False)
    assert broker.run(20, lambda: not broker.holders()) <= HOLD_S
    broker.run(20, held(broker, "b"))
    broker.connect("a")
    broker.run(1)
    assert isinstance(broker.servers["a"].state.phase, Lost)


def test_a_standby_that_is_not_named_waits(broker: Broker) -> None:
    synced(broker)
    broker.sync("a", "")
    broker.kill("a")
    broker.run(60)
    assert broker.holders() == []


def test_a_server_that_comes_back_in_time_keeps_the_lease(broker: Broker) -> None:
    synced(broker)
    broker.cut("a", will=True)
    broker.run(3)
    broker.connect("a")
    broker.run(20)
    assert broker.holders() == ["a"]
    assert isinstance(broker.servers["b"].state.phase, Looking)


def test_a_lease_that_is_given_back_is_followed_at_once(broker: Broker) -> None:
    synced(broker)
    broker.run(2)
    first = broker.servers["a"]
    broker.publish(machine.give_up(first.state, over=False))
    first.dead = True
    assert broker.run(20, held(broker, "b")) < 0.5


@pytest.mark.parametrize("state", ["lost", "free", "over"])
def test_a_server_that_was_cut_off_yields_to_one_that_has_served_since(state: str) -> None:
    cut_off = LeaseState(holder("a"), "home", phase=Held(held_until=9.0), epoch=1, connected=True)
    since = LeaseState(holder("b"), "home", epoch=2).message(state, 77)
    after, said = machine.step(cut_off, Heard(since, retained=True), 20.0)
    assert (after.phase, said) == (Lost(since), [])
    before = LeaseState(holder("b"), "home", epoch=1).message(state, 77)
    assert isinstance(machine.step(cut_off, Heard(before, retained=True), 20.0)[0].phase, Held)


def test_whoever_gives_up_a_claim_takes_back_that_it_holds_the_lease() -> None:
    me, other = holder("a", since=9.0), holder("b")
    claim = Claim(served=1)
    confirming = LeaseState(
        me, "home", run="r", phase=Confirming(claim, sent={6: 1.0}, next_at=2.0), epoch=2, connected=True
    )
    confirming = replace(confirming, log=LeaseLog(confirming.message("claimed", 5), 5, 1.0, live=True))
    held = LeaseState(other, "home", run="r", epoch=1).message("held", 6)
    looking, (said,) = machine.step(confirming, Heard(held), 1.1)
    assert isinstance(looking.phase, Looking)
    assert (said.state, said.epoch, said.beat, said.newest_served) == ("claimed", 2, 6, 1)
    settling = replace(confirming, phase=Settling(claim, until=2.0))
    assert machine.step(settling, Heard(held), 1.1)[1] == []


def test_only_a_holder_names_a_standby() -> None:
    looking = LeaseState(holder("a"), "home")
    state, said = machine.name_standby(looking, "s", 1.0)
    assert (state.synced, said) == ("s", [])


@pytest.mark.parametrize("seed", range(12))
def test_never_two_holders_whatever_happens(seed: int) -> None:
    chance = random.Random(seed)
    broker = Broker(delay=chance.choice([0.01, 0.05, 0.3]))
    synced(broker)
    for _ in range(25):
        name = chance.choice(list(broker.servers))
        server = broker.servers[name]
        match chance.randrange(4):
            case 0 if not server.dead:
                server.paused = not server.paused
            case 1 if server.state.connected:
                broker.cut(name, will=chance.random() < 0.5)
            case 2 if not server.dead and not server.state.connected:
                broker.connect(name)
            case 3 if len(broker.servers) < 6:
                broker.add(f"s{len(broker.servers)}", follows=chance.random() < 0.5)
        broker.run(chance.choice([0.2, 1.0, 3.0, 9.0]))
    broker.run(10)


def test_a_folder_whose_run_went_on_elsewhere_is_refused(broker: Broker) -> None:
    synced(broker)
    broker.servers["a"].state = replace(broker.servers["a"].state, run="run-1")
    broker.kill("a")
    broker.run(20, held(broker, "b"))
    second = broker.servers["b"]
    second.state = replace(second.state, run="run-1")
    broker.publish(machine.give_up(second.state, over=True))
    second.dead = True
    old = broker.add("old")
    old.state = replace(old.state, run="run-1")
    broker.run(2)
    assert taken(old).behind
    new = broker.add("new")
    new.state = replace(new.state, run="run-2")
    broker.run(2)
    assert isinstance(new.state.phase, Held)


def test_nobody_follows_in_a_run_that_is_over(broker: Broker) -> None:
    synced(broker)
    broker.publish(machine.give_up(broker.servers["a"].state, over=True))
    broker.servers["a"].dead = True
    broker.run(20)
    assert broker.holders() == []


def test_a_claim_of_a_standby_that_has_died_does_not_make_a_folder_old(broker: Broker) -> None:
    synced(broker)
    for server in broker.servers.values():
        server.state = replace(server.state, run="run-1")
    broker.run(2)
    broker.kill("a")
    broker.run(20, claims(broker, "b"))
    broker.kill("b")
    again = broker.add("again")
    again.state = replace(again.state, me=holder("again", host="a"), run="run-1")
    assert broker.run(20, held(broker, "again")) < SILENCE_S + 1.5
    assert again.state.epoch == 3


def test_a_claim_of_a_holder_that_was_restarted_leaves_other_folders_old(broker: Broker) -> None:
    synced(broker)
    for server in broker.servers.values():
        server.state = replace(server.state, run="run-1")
    broker.kill("a")
    broker.run(20, held(broker, "b"))
    broker.kill("b")
    back = broker.add("back")
    back.state = replace(back.state, me=holder("back", host="b"), run="run-1", first_epoch=2)
    broker.run(20, claims(broker, "back"))
    broker.kill("back")
    again = broker.add("again")
    again.state = replace(again.state, me=holder("again", host="a"), run="run-1")
    broker.run(20)
    assert taken(again).behind


def test_whoever_holds_knows_that_others_know(broker: Broker) -> None:
    synced(broker)
    broker.kill("a")
    broker.run(20, held(broker, "b"))
    assert broker.retained is not None
    assert (broker.retained.state, broker.retained.holder.instance) == ("held", "b")


def test_an_older_epoch_does_not_end_a_newer_one(broker: Broker) -> None:
    synced(broker)
    before = broker.servers["a"].state
    broker.kill("a")
    broker.run(20, held(broker, "b"))
    assert broker.retained is not None
    late = replace(before, me=holder("again", host="a"))
    broker.publish(late.message("held", broker.retained.beat + 1))
    broker.run(10)
    assert broker.holders() == ["b"]


def test_a_restored_folder_waits_for_the_old_server_and_makes_its_folder_an_old_one(broker: Broker) -> None:
    """A restore from a backup writes a much later epoch into the journal, below which nobody goes on."""
    broker.add("old")
    broker.servers["old"].state = replace(broker.servers["old"].state, run="run-1")
    broker.run(3)
    first = broker.add("restored")
    first.state = replace(first.state, run="run-1", first_epoch=1001)
    broker.run(10)
    assert not taken(first).behind
    broker.kill("old")
    second = broker.add("again")
    second.state = replace(second.state, run="run-1", first_epoch=1001)
    broker.run(20, held(broker, "again"))
    assert second.state.epoch == 1001
    broker.kill("again")
    back = broker.add("back", host="old")
    back.state = replace(back.state, run="run-1", first_epoch=1)
    broker.run(20)
    assert taken(back).behind


def test_a_renewal_that_is_heard_twice_counts_once() -> None:
    looking = LeaseState(holder("a"), "home", connected=True, phase=Looking(since=0.0))
    renewal = LeaseState(holder("b"), "home", epoch=1).message("held", 7)
    once, _ = machine.step(looking, Heard(renewal), 1.0)
    twice, _ = machine.step(once, Heard(renewal), 1.5)
    assert twice == once
    assert once.phase == Looking(since=0.0, lives=True)
    assert once.log.heard_at == 1.0
    following = LeaseState(holder("b"), "home", epoch=1).message("held", 8)
    assert machine.step(twice, Heard(following), 2.0)[0].log.heard_at == 2.0
