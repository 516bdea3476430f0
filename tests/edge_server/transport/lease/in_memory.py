"""Servers and a broker in memory, for tests of the lease; at most one server holds it at any time."""

import itertools
from dataclasses import dataclass, field, replace

from edge_server.transport.lease import machine
from edge_server.transport.lease.phases import ClaimStep, Held, Taken
from edge_server.transport.lease.state import (
    Connected,
    Disconnected,
    Event,
    Heard,
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
        if will and isinstance(server.state.phase, Held):
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

    def do(self, name: str, event: Event) -> None:
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


def held(broker: Broker, name: str):
    return lambda: broker.servers[name].state.holds(broker.now)


def synced(broker: Broker) -> None:
    broker.add("a")
    broker.run(1)
    broker.add("b", follows=True)
    broker.run(1)
    broker.sync("a", "b")


def lose(broker: Broker, seconds: float) -> None:
    """Let the broker lose what is published meanwhile."""
    publish, broker.publish = broker.publish, lambda lease: None
    broker.run(seconds)
    broker.publish = publish


def claims(broker: Broker, name: str):
    return lambda: isinstance(broker.servers[name].state.phase, ClaimStep)


def taken(server: Server) -> Taken:
    assert isinstance(server.state.phase, Taken)
    return server.state.phase
