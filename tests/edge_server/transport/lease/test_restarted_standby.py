"""A standby that has died between its claim and its first work goes on, if its folder is a copy still."""

from dataclasses import replace

import pytest

from edge_server.transport.lease.phases import Confirming, Looking
from edge_server.transport.lease.state import SILENCE_S, LeaseState
from schemas.messages import Lease, LeaseHolder
from tests.edge_server.transport.lease.in_memory import Broker, Server, claims, held, holder, synced, taken


def of_folder(name: str, folder: str) -> LeaseHolder:
    return holder(name, host=folder).model_copy(update={"folder": f"/runs/{folder}"})


def confirming(broker: Broker) -> None:
    """The server `a` has ended, the standby `b` has renewed its claim, has heard nothing, and has died."""
    synced(broker)
    for server in broker.servers.values():
        server.state = replace(server.state, run="run-1")
    broker.kill("a")
    standby = broker.servers["b"]
    broker.run(20, lambda: isinstance(standby.state.phase, Confirming))
    broker.kill("b")


def restart(broker: Broker, name: str = "b2", *, run: str | None = "run-1", served: int = 1) -> Server:
    """The standby of the folder of `b` starts again; its copy was last served in this epoch."""
    server = broker.servers[name] = Server(
        LeaseState(of_folder(name, "b"), "home", run, follows=True, first_epoch=served)
    )
    broker.connect(name)
    return server


def restart_old(broker: Broker) -> Server:
    old = broker.servers["a2"] = Server(LeaseState(of_folder("a2", "a"), "home", "run-1", had_standby=True))
    broker.connect("a2")
    return old


def test_it_takes_over_in_the_epoch_of_its_claim(broker: Broker) -> None:
    confirming(broker)
    assert broker.retained is not None
    assert broker.retained.state == "held"
    restarted = restart(broker)
    assert broker.run(20, held(broker, "b2")) < 1.5
    assert restarted.state.epoch == 2
    old = restart_old(broker)
    broker.run(20, lambda: not isinstance(old.state.phase, Looking))
    assert not taken(old).behind


def test_the_old_server_may_go_on_if_it_dies_again_before_it_is_sure(broker: Broker) -> None:
    confirming(broker)
    restart(broker)
    broker.run(20, claims(broker, "b2"))
    broker.run(0.1)
    broker.kill("b2")
    assert broker.retained is not None
    assert broker.retained.newest_served == 1
    restart_old(broker)
    assert broker.run(20, held(broker, "a2")) < SILENCE_S + 2


@pytest.mark.parametrize(("run", "served"), [("run-2", 1), (None, 1), ("run-1", 2), ("run-1", 1001)], ids=str)
def test_it_waits_if_its_copy_is_another(broker: Broker, run: str | None, served: int) -> None:
    """That of another run, none, or one that went on in the epoch of the claim, or later."""
    confirming(broker)
    restarted = restart(broker, run=run, served=served)
    broker.run(30)
    assert isinstance(restarted.state.phase, Looking)


@pytest.mark.parametrize("state", ["claimed", "over"])
def test_it_waits_after_a_claim_alone_and_after_the_end(broker: Broker, state: str) -> None:
    confirming(broker)
    assert broker.retained is not None
    broker.retained = broker.retained.model_copy(update={"state": state, "served": 1})
    restarted = restart(broker)
    broker.run(30)
    assert isinstance(restarted.state.phase, Looking)


def test_it_waits_for_whoever_has_served_since(broker: Broker) -> None:
    confirming(broker)
    broker.retained = Lease(
        federation="home", state="lost", epoch=3, beat=9, holder=holder("c"), run="run-1", standby=""
    )
    restarted = restart(broker)
    broker.run(30)
    assert isinstance(restarted.state.phase, Looking)


def test_a_server_of_that_folder_is_no_standby(broker: Broker) -> None:
    """Where a standby has taken over, the folder is no copy: its server counts what it has served."""
    confirming(broker)
    server = restart(broker)
    server.state = replace(server.state, follows=False)
    broker.run(20, claims(broker, "b2"))
    assert broker.retained is not None
    assert broker.retained.newest_served == 2
