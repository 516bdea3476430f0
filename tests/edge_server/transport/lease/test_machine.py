"""Servers and a broker in memory: one holder at a time, whoever stops, is cut off or comes back."""

import itertools
import random
from dataclasses import dataclass, field, replace

import pytest

from edge_server.transport.lease import machine
from edge_server.transport.lease.log import LeaseLog
from edge_server.transport.lease.machine import (
    GRACE_S,
    HOLD_S,
    SILENCE_S,
    Connected,
    Disconnected,
    Heard,
    LeasePhase,
    LeaseState,
    ReadBack,
    Tick,
)
from schemas.messages import Lease, LeaseHolder


def holder(name: str, *, host: str = "", since: float = 0.0) -> LeaseHolder:
    return LeaseHolder(instance=name, host=host or name, pid=1, folder=f"/runs/{name}", since=since)


@dataclass
class Server:
    state: LeaseState
    inbox: list[tuple[float, Lease, bool]] = field(default_factory=list)
    paused: bool = False
    dead: bool = False


class Broker:
    """One topic with a retained message; messages reach each connected server after `delay` seconds.

    Those that are `deaf` hear only themselves, and what is retained when they subscribe.
    """

    def __init__(self, delay: float = 0.05) -> None:
        self.now, self.delay = 0.0, delay
        self.retained: Lease | None = None
        self.servers: dict[str, Server] = {}
        self.deaf: set[str] = set()
        self._wills = itertools.count(1_000, 1_000)

    def add(self, name: str, *, follows: bool = False, host: str = "") -> Server:
        me = holder(name, host=host, since=self.now)
        server = self.servers[name] = Server(LeaseState(me, "home", follows=follows))
        self.connect(name)
        return server

    def connect(self, name: str) -> None:
        server = self.servers[name]
        self.do(name, Connected())
        if self.retained is not None:
            server.inbox.append((self.now + self.delay if server.inbox else self.now, self.retained, True))

    def cut(self, name: str, *, will: bool) -> None:
        """End a connection; the broker notices it, or not yet."""
        server = self.servers[name]
        server.inbox.clear()
        if will and server.state.phase is LeasePhase.HELD:
            self.publish(replace(server.state, synced="").message("lost", next(self._wills)))
        if not server.dead:
            self.do(name, Disconnected())

    def kill(self, name: str) -> None:
        self.servers[name].dead = True
        self.cut(name, will=True)

    def publish(self, lease: Lease) -> None:
        self.retained = lease
        for name, server in self.servers.items():
            heard = name not in self.deaf or lease.holder == server.state.me
            if server.state.connected and not server.dead and heard:
                server.inbox.append((self.now + self.delay, lease, False))

    def do(self, name: str, event: machine.Event) -> None:
        server = self.servers[name]
        server.state, commands = machine.step(server.state, event, self.now)
        for command in commands:
            if isinstance(command, ReadBack):
                self.connect(name)
            elif server.state.connected:
                self.publish(command)

    def turn(self, name: str) -> None:
        server = self.servers[name]
        while server.inbox and server.inbox[0][0] <= self.now:
            _, lease, retained = server.inbox.pop(0)
            self.do(name, Heard(lease, retained))
        last = server.state.log.last
        gone = last is not None and any(
            other.dead and other.state.me == last.holder for other in self.servers.values()
        )
        here = last is not None and last.holder.host == server.state.me.host
        self.do(name, Tick(alive=(not gone) if here else None))

    def run(self, seconds: float, until=lambda: False, step: float = 0.1) -> float:
        """Let time pass; returns the seconds that it took."""
        began = self.now
        while self.now < began + seconds and not until():
            self.now += step
            for name, server in list(self.servers.items()):
                if not server.dead and not server.paused:
                    self.turn(name)
            assert len(self.holders()) <= 1, self.holders()
        return self.now - began

    def holders(self) -> list[str]:
        """Servers that may write now; of a paused one, whatever it asks first when it goes on."""
        return [n for n, s in self.servers.items() if not s.dead and s.state.holds(self.now)]

    def sync(self, name: str, standby: str) -> None:
        server = self.servers[name]
        server.state, messages = machine.name_standby(server.state, standby, self.now)
        for message in messages:
            self.publish(message)
        self.run(0.2)


@pytest.fixture
def broker() -> Broker:
    return Broker()


def held(broker: Broker, name: str):
    return lambda: broker.servers[name].state.holds(broker.now)


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
    assert broker.run(10, lambda: second.state.phase is LeasePhase.TAKEN) < 2
    assert second.state.by is not None
    assert second.state.by.holder.instance == "a"
    broker.run(10)
    assert broker.holders() == ["a"]


def test_of_two_that_start_together_one_gets_it(broker: Broker) -> None:
    for name in "abc":
        broker.add(name)
    broker.run(20)
    phases = sorted(server.state.phase for server in broker.servers.values())
    assert phases == [LeasePhase.HELD, LeasePhase.TAKEN, LeasePhase.TAKEN]


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


def synced(broker: Broker) -> None:
    broker.add("a")
    broker.run(1)
    broker.add("b", follows=True)
    broker.run(1)
    broker.sync("a", "b")


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
    assert broker.servers["a"].state.phase is LeasePhase.LOST
    assert broker.servers["a"].state.by.holder.instance == "b"
    broker.run(10)
    assert broker.holders() == ["b"]


def test_a_server_that_was_cut_off_holds_for_less_time_than_others_wait(broker: Broker) -> None:
    synced(broker)
    broker.cut("a", will=False)
    assert broker.run(20, lambda: not broker.holders()) <= HOLD_S
    broker.run(20, held(broker, "b"))
    broker.connect("a")
    broker.run(1)
    assert broker.servers["a"].state.phase is LeasePhase.LOST


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
    assert broker.servers["b"].state.phase is LeasePhase.LOOKING


def test_a_lease_that_is_given_back_is_followed_at_once(broker: Broker) -> None:
    synced(broker)
    broker.run(2)
    first = broker.servers["a"]
    broker.publish(machine.give_up(first.state, over=False))
    first.dead = True
    assert broker.run(20, held(broker, "b")) < 0.5


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
    assert broker.servers["c"].state.phase in (LeasePhase.TAKEN, LeasePhase.LOST)


def test_a_broker_that_passes_nothing_on_is_noticed(broker: Broker) -> None:
    server = broker.add("a")
    broker.delay = 1e9
    broker.run(10)
    assert server.state.phase is LeasePhase.MUTE


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
    assert broker.servers["b"].state.phase is not LeasePhase.HELD


def test_a_claim_counts_if_the_broker_retains_nothing(broker: Broker) -> None:
    synced(broker)
    broker.kill("a")
    publish = broker.publish

    def forgetful(lease: Lease) -> None:
        publish(lease)
        broker.retained = None

    broker.publish = forgetful  # type: ignore[method-assign]
    assert broker.run(20, held(broker, "b")) < GRACE_S + 1.5


def lose(broker: Broker, seconds: float) -> None:
    """Let the broker lose what is published meanwhile."""
    publish, broker.publish = broker.publish, lambda lease: None
    broker.run(seconds)
    broker.publish = publish


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
    assert alone.state.phase is LeasePhase.MUTE
    broker.delay = 0.05
    broker.run(30)
    assert alone.state.phase is LeasePhase.HELD


def test_a_server_that_took_a_lossy_broker_for_mute_looks_again(broker: Broker) -> None:
    first = broker.add("a")
    lose(broker, 7)
    assert first.state.phase is LeasePhase.MUTE
    second = broker.add("b")
    broker.run(20)
    assert (first.state.phase, second.state.phase) == (LeasePhase.TAKEN, LeasePhase.HELD)


@pytest.mark.parametrize("state", ["lost", "free", "over"])
def test_a_server_that_was_cut_off_yields_to_one_that_has_served_since(state: str) -> None:
    cut_off = LeaseState(holder("a"), "home", phase=LeasePhase.HELD, epoch=1, connected=True, held_until=9.0)
    since = LeaseState(holder("b"), "home", epoch=2).message(state, 77)
    after, said = machine.step(cut_off, Heard(since, retained=True), 20.0)
    assert (after.phase, after.by, said) == (LeasePhase.LOST, since, [])
    before = LeaseState(holder("b"), "home", epoch=1).message(state, 77)
    assert machine.step(cut_off, Heard(before, retained=True), 20.0)[0].phase is LeasePhase.HELD


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
    assert again.state.phase is LeasePhase.TAKEN


def test_whoever_gives_up_a_claim_takes_back_that_it_holds_the_lease() -> None:
    me, other = holder("a", since=9.0), holder("b")
    claiming = LeaseState(me, "home", run="r", phase=LeasePhase.CLAIMING, epoch=2, connected=True, served=1)
    claiming = replace(
        claiming, log=LeaseLog(claiming.message("claimed", 5), 5, 1.0, live=True), sent={6: 1.0}
    )
    held = LeaseState(other, "home", run="r", epoch=1).message("held", 6)
    looking, (said,) = machine.step(claiming, Heard(held), 1.1)
    assert looking.phase is LeasePhase.LOOKING
    assert (said.state, said.epoch, said.beat, said.newest_served) == ("claimed", 2, 6, 1)
    assert machine.step(replace(claiming, sent={}), Heard(held), 1.1)[1] == []


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
    assert (old.state.phase, old.state.behind) == (LeasePhase.TAKEN, True)
    new = broker.add("new")
    new.state = replace(new.state, run="run-2")
    broker.run(2)
    assert new.state.phase is LeasePhase.HELD


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


def test_nobody_follows_in_a_run_that_is_over(broker: Broker) -> None:
    synced(broker)
    broker.publish(machine.give_up(broker.servers["a"].state, over=True))
    broker.servers["a"].dead = True
    broker.run(20)
    assert broker.holders() == []


def claims(broker: Broker, name: str):
    return lambda: broker.servers[name].state.phase is LeasePhase.CLAIMING


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
    assert alone.state.phase is LeasePhase.HELD


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
    assert (again.state.phase, again.state.behind) == (LeasePhase.TAKEN, True)


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
    assert (first.state.phase, first.state.behind) == (LeasePhase.TAKEN, False)
    broker.kill("old")
    second = broker.add("again")
    second.state = replace(second.state, run="run-1", first_epoch=1001)
    broker.run(20, held(broker, "again"))
    assert second.state.epoch == 1001
    broker.kill("again")
    back = broker.add("back", host="old")
    back.state = replace(back.state, run="run-1", first_epoch=1)
    broker.run(20)
    assert (back.state.phase, back.state.behind) == (LeasePhase.TAKEN, True)
