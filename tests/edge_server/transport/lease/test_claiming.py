"""The steps of a claim, in order, and what a claim that is given up leaves."""

from edge_server.transport.lease.phases import ClaimStep, Looking, Settling
from edge_server.transport.lease.state import Event
from tests.edge_server.transport.lease.in_memory import Broker, claims, held, synced


def phases_of(broker: Broker, name: str) -> list[str]:
    """The phases that this server is in from now on."""
    phases: list[str] = []
    do = broker.do

    def recorded(who: str, event: Event) -> None:
        do(who, event)
        phase = type(broker.servers[name].state.phase).__name__ if name in broker.servers else ""
        if phase not in ("", *phases[-1:]):
            phases.append(phase)

    broker.do = recorded  # type: ignore[method-assign]
    return phases


def test_where_nobody_had_the_lease_nobody_can_contradict_a_claim(broker: Broker) -> None:
    phases = phases_of(broker, "a")
    broker.add("a")
    broker.run(5, held(broker, "a"))
    assert phases == ["Looking", "Claiming", "Settling", "Confirming", "Held"]


def test_what_the_broker_retains_is_read_after_a_claim_on_a_silent_holder(broker: Broker) -> None:
    synced(broker)
    phases = phases_of(broker, "b")
    broker.kill("a")
    broker.run(20, held(broker, "b"))
    assert phases == ["Looking", "Claiming", "Settling", "Verifying", "Confirming", "Held"]


def test_a_claim_that_is_cut_off_ends_at_each_of_its_steps(broker: Broker) -> None:
    synced(broker)
    broker.kill("a")
    standby = broker.servers["b"]
    broker.run(20, claims(broker, "b"))
    for _ in range(4):
        assert isinstance(standby.state.phase, ClaimStep)
        broker.cut("b", will=False)
        assert isinstance(standby.state.phase, Looking)
        broker.connect("b")
        broker.run(20, claims(broker, "b"))
    assert broker.run(5, held(broker, "b")) < 1.5


def test_a_holder_that_is_heard_while_a_claim_settles_keeps_the_lease(broker: Broker) -> None:
    synced(broker)
    holder, standby = broker.servers["a"], broker.servers["b"]
    holder.paused = True
    broker.run(20, lambda: isinstance(standby.state.phase, Settling))
    holder.paused, holder.inbox = False, []
    broker.run(5)
    assert broker.holders() == ["a"]
    assert isinstance(standby.state.phase, Looking)
