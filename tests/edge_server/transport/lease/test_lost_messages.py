"""One holder at a time, whatever the broker loses, forgets or passes on late."""

from dataclasses import replace

import pytest

from edge_server.transport.lease.phases import Held, LeaseLog, Lost, Mute, Taken
from edge_server.transport.lease.state import GRACE_S, SILENCE_S, LeaseState
from schemas.messages import Lease
from tests.edge_server.transport.lease.in_memory import Broker, Server, claims, held, holder, lose, synced


def test_a_broker_that_forgets_does_not_change_the_holder(broker: Broker) -> None:
    synced(broker)
    for name in "ab":
        broker.cut(name, will=False)
    broker.retained = None
    broker.run(1)
    broker.connect("b")
    broker.add("c")
    broker.connect("a")
    broker.run(30)
    assert broker.holders() == ["a"]
    assert isinstance(broker.servers["c"].state.phase, Taken | Lost)


def test_a_broker_that_passes_nothing_on_is_noticed(broker: Broker) -> None:
    server = broker.add("a")
    broker.delay = 1e9
    broker.run(10)
    assert isinstance(server.state.phase, Mute)


@pytest.mark.parametrize("paused", [True, False])
def test_a_standby_that_hears_nothing_of_a_holder_that_lives_does_not_take_over(
    broker: Broker, paused: bool
) -> None:
    """The holder has gone on without it meanwhile, so that its copy lacks updates."""
    synced(broker)
    broker.run(3)
    broker.deaf.add("b")
    broker.run(2)
    broker.sync("a", "")
    broker.servers["a"].paused = paused
    broker.run(6)
    broker.servers["a"].paused = False
    broker.run(30)
    assert broker.holders() == ["a"]
    assert broker.servers["a"].state.epoch == 1
    broker.deaf.clear()
    broker.run(2)
    broker.sync("a", "b")
    broker.kill("a")
    assert broker.run(20, held(broker, "b")) < GRACE_S + 1


def test_a_claim_is_read_back_before_it_counts(broker: Broker) -> None:
    """Of a claim and its contradiction a server may hear the claim alone; the broker retains the last."""
    synced(broker)
    first = broker.servers["a"]
    first.paused = True
    broker.deaf.add("b")
    broker.run(SILENCE_S + 2, claims(broker, "b"))
    first.paused, first.inbox = False, []
    broker.run(20)
    assert broker.holders() == ["a"]
    assert not isinstance(broker.servers["b"].state.phase, Held)


def test_a_claim_counts_if_the_broker_retains_nothing(broker: Broker) -> None:
    synced(broker)
    broker.kill("a")
    publish = broker.publish

    def forgetful(lease: Lease) -> None:
        publish(lease)
        broker.retained = None

    broker.publish = forgetful  # type: ignore[method-assign]
    assert broker.run(20, held(broker, "b")) < GRACE_S + 1.5


def test_a_claim_that_is_lost_is_repeated(broker: Broker) -> None:
    broker.add("a")
    lose(broker, 2)
    assert broker.run(5, held(broker, "a")) < 1.5


def test_a_standby_whose_claims_are_lost_goes_on_claiming(broker: Broker) -> None:
    synced(broker)
    broker.kill("a")
    broker.run(20, claims(broker, "b"))
    lose(broker, 20)
    assert broker.run(5, held(broker, "b")) < 3


def test_a_claim_that_comes_back_late_is_no_other_servers(broker: Broker) -> None:
    alone = broker.add("a")
    broker.delay = 9.0
    broker.run(8)
    assert isinstance(alone.state.phase, Mute)
    broker.delay = 0.05
    broker.run(30)
    assert isinstance(alone.state.phase, Held)


def test_a_server_that_took_a_lossy_broker_for_mute_looks_again(broker: Broker) -> None:
    first = broker.add("a")
    lose(broker, 7)
    assert isinstance(first.state.phase, Mute)
    second = broker.add("b")
    broker.run(20)
    assert isinstance(first.state.phase, Taken)
    assert isinstance(second.state.phase, Held)


def test_a_server_that_had_a_standby_waits_for_a_holder_whom_the_broker_has_forgotten(broker: Broker) -> None:
    synced(broker)
    broker.kill("a")
    broker.run(20, held(broker, "b"))
    broker.cut("b", will=False)
    broker.retained = None
    again = broker.servers["a"] = Server(LeaseState(holder("a"), "home", run="r", had_standby=True))
    broker.connect("a")
    broker.run(1)
    assert broker.holders() in ([], ["b"])
    broker.connect("b")
    broker.run(10)
    assert broker.holders() == ["b"]
    assert isinstance(again.state.phase, Taken)


def test_a_claim_that_comes_too_late_does_not_end_the_holder(broker: Broker) -> None:
    synced(broker)
    broker.run(1)
    late = broker.servers["b"].state
    broker.publish(replace(late, epoch=2).message("claimed", late.log.beat))
    broker.run(10)
    assert broker.holders() == ["a"]


def test_a_claim_on_an_old_will_yields_to_a_holder_that_lives(broker: Broker) -> None:
    synced(broker)
    broker.run(1)
    holder_s = broker.servers["a"].state
    old = replace(holder_s, me=holder("dead"), epoch=7, synced="").message("lost", 0)
    broker.retained = old
    broker.servers["a"].paused = True
    broker.add("new", host="dead")
    broker.servers["new"].state = replace(
        broker.servers["new"].state, me=holder("new", host="dead"), log=LeaseLog()
    )
    broker.run(0.5)
    broker.servers["a"].paused = False
    broker.run(10)
    assert len(broker.holders()) <= 1


def test_a_claim_that_was_cut_off_stands_if_nothing_has_followed_it(broker: Broker) -> None:
    synced(broker)
    broker.kill("a")
    broker.run(20, claims(broker, "b"))
    broker.cut("b", will=False)
    broker.run(60)
    broker.connect("b")
    assert broker.run(20, held(broker, "b")) < 1.5
    assert broker.servers["b"].state.epoch == 2


def test_a_server_that_is_cut_off_as_it_claims_is_not_refused_for_itself(broker: Broker) -> None:
    alone = broker.add("a")
    broker.run(5, claims(broker, "a"))
    broker.cut("a", will=False)
    broker.run(5)
    broker.connect("a")
    broker.run(5)
    assert isinstance(alone.state.phase, Held)
