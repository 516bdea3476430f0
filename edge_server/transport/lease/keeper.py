"""Keeps the lease of a federation over a broker connection of its own, in a thread of its own.

A busy or waiting server goes on renewing it. Whether the server may write is asked of `holds`, in its own
thread and by the clock: of a process that was stopped and goes on, that is the first question.
"""

import logging
import queue
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from edge_client.transport import broker_link, mqtt_client
from edge_client.transport.event_loop import EventLoop
from edge_server.transport.lease import machine
from edge_server.transport.lease import state as lease
from edge_server.transport.lease.holder import in_words, runs_here
from edge_server.transport.lease.phases import Held, Looking, Lost, Mute, Taken
from schemas.errors import ConfigError, PeerError
from schemas.messages import Lease, LeaseHolder, decode_message, encode_message
from schemas.topics import lease_topic

log = logging.getLogger(__name__)

TICK_S = 0.1
LONGEST_DELAY_S = 1.0
UNREACHABLE_S = 3.0
"""For so long a start waits for a broker before it goes on without knowing who holds the lease."""
WILL_BYTES = 6
DECIDED = Held | Taken | Lost | Mute


class LeaseKeeper:
    """Looks for a lease, claims it, renews it until it is closed; `changed` is called from its thread."""

    def __init__(
        self,
        address: broker_link.BrokerAddress,
        federation: str,
        me: LeaseHolder,
        *,
        follows: bool = False,
        first_epoch: int = 1,
        run: str | None = None,
        had_standby: bool = False,
    ) -> None:
        self._topic = lease_topic(federation)
        self._state = lease.LeaseState(
            me, federation, run, follows=follows, first_epoch=first_epoch, had_standby=had_standby
        )
        self._inbox: broker_link.Inbox = queue.SimpleQueue()
        self._lock = threading.Condition()
        self.ended = False
        self._others: broker_link.Inbox | None = None
        self._address, self.trouble = address, ""
        self._watched: Callable[[lease.LeaseState], None] = lambda state: None
        self._link = mqtt_client.Link(
            address,
            self._inbox,
            client_id=f"{federation[:40]}-lease-{me.instance}",
            filters=(self._topic,),
            longest_delay_s=LONGEST_DELAY_S,
            reports_subscribed=True,
        )
        self.loop = EventLoop(
            self._inbox, TICK_S, tick=lambda now: self._handle(None), handle=self._handle, name="the lease"
        )
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    @property
    def state(self) -> lease.LeaseState:
        """What is known now."""
        return self._state

    @property
    def mute(self) -> bool:
        """Whether the broker does not pass the topic on, so that no server can hold a lease."""
        return isinstance(self._state.phase, Mute)

    def holds(self) -> bool:
        """Whether this server may write and send now; without a lease on this broker, every server may."""
        return self.mute or self._state.holds(time.monotonic())

    def will(self, session: int) -> tuple[str, bytes]:
        """The last will of the server's own connection: topic and payload.

        Not of this one: a server that only looks must not speak for the holder. Beats go on from the will's,
        which is like no other: a late message that follows an earlier beat must not count.
        """
        beat = int(secrets.token_hex(WILL_BYTES), 16)
        return self._topic, encode_message(self._state.message("lost", beat))

    def open(self) -> "LeaseKeeper":
        """Begin to look for the lease."""
        self._link.open()
        self._thread.start()
        return self

    def watch(self, changed: Callable[[lease.LeaseState], None]) -> None:
        """Call this, from the keeper's thread, after every change."""
        with self._lock:
            self._watched = changed
            changed(self._state)

    def await_start(self) -> None:
        """Wait until the lease is held; raises `ConfigError` that names the holder if it is taken.

        Returns without a lease if the broker cannot be reached, or passes nothing on.
        """
        until = time.monotonic() + UNREACHABLE_S
        with self._lock:
            while not isinstance(self._state.phase, DECIDED):
                if not self._state.connected and time.monotonic() >= until:
                    break
                self._lock.wait(TICK_S)
        self.check()
        if self.mute:
            log.warning(
                "the broker does not pass on %s: two servers of one name would not notice each other, and "
                "no standby can follow; renew the broker's access rules (`edge-server enroll` writes them)",
                self._topic,
            )

    def check(self) -> None:
        """Raise `ConfigError` if another server has the federation."""
        state = self._state
        match state.phase:
            case Taken(by, behind=True):
                raise ConfigError(
                    f"the run '{state.run}' was continued by another server: {in_words(by.holder)}; what "
                    "this folder holds is older",
                    remedy="start the server or standby of that folder, or begin a new run with --new",
                )
            case Taken(by):
                raise ConfigError(
                    f"the federation '{state.federation}' is served already: {in_words(by.holder)}",
                    remedy="stop that server, set another [federation] name, or follow it with "
                    "`edge-server standby`",
                )

    def serve(self, run: str | None) -> None:
        """Name the run in later messages."""
        with self._lock:
            self._state = replace(self._state, run=run)

    def follow(self, run: str | None, served: int) -> None:
        """Name the copied run in later messages; it was last `served` in this epoch."""
        with self._lock:
            self._state = replace(self._state, run=run, first_epoch=served)

    @property
    def named_standby(self) -> str | None:
        """The instance that may follow, by the last message that counts; None if it is another's."""
        last = self._state.log.last
        if last is None or last.holder.instance != self._state.me.instance or last.state != "held":
            return None
        return last.standby

    def name_standby(self, standby: str) -> None:
        """Name the instance that may follow, or none; each later renewal does."""
        with self._lock:
            self._take(machine.name_standby(self._state, standby, time.monotonic()))

    def talk(self, topics: frozenset[str], inbox: broker_link.Inbox | None) -> None:
        """Subscribe to these topics, too; their messages go into the inbox."""
        with self._lock:
            self._others = inbox
            self._link.listen(topics)

    def say(self, topic: str, payload: bytes) -> None:
        """Publish another message than a lease."""
        with self._lock:
            self._link.publish(topic, payload)

    def close(self, *, over: bool) -> None:
        """Give the lease back, and disconnect; `over` if no server goes on with the run."""
        with self._lock:
            self.ended = True
            if self._state.holds(time.monotonic()):
                self._publish(machine.give_up(self._state, over=over))
        self._thread.join()
        self._link.close()

    def _run(self) -> None:
        self.loop.run(until=lambda: self.ended)

    def _handle(self, event: object) -> None:
        """Take an event, if there is one, and then the time."""
        with self._lock:
            if not self.ended:
                self._take_event(event)
                self._lock.notify_all()

    def _take_event(self, event: object) -> None:
        now, before = time.monotonic(), self._state
        match event:
            case broker_link.Subscribed():
                self._step(lease.Connected(), now)
            case broker_link.LinkDown(reason):
                self.trouble = f"no connection to {self._address}: {reason}; trying again"
                self._link.handle(event)
                self._step(lease.Disconnected(), now)
            case broker_link.Arrived(topic, payload, retained) if topic == self._topic and payload:
                self._hear(payload, now, retained=retained)
            case broker_link.Arrived() if self._others is not None:
                self._others.put(event)
            case broker_link.LinkUp():
                self.trouble = ""
                self._link.handle(event)
            case broker_link.Confirmed():
                self._link.handle(event)
        self._step(lease.Tick(self._alive()), now)
        if self._state is not before:
            self._watched(self._state)

    def _hear(self, payload: bytes, now: float, *, retained: bool) -> None:
        message = decode_message(payload, federation=self._state.federation)
        if not isinstance(message, Lease):
            raise PeerError(f"'{message.kind}' on the topic of the lease")
        self._step(lease.Heard(message, retained), now)

    def _alive(self) -> bool | None:
        last = self._state.log.last
        if not isinstance(self._state.phase, Looking) or last is None:
            return None
        return runs_here(last.holder)

    def _step(self, event: lease.Event, now: float) -> None:
        self._take(machine.step(self._state, event, now))

    def _take(self, step: lease.Step) -> None:
        self._state, commands = step
        for command in commands:
            if isinstance(command, lease.ReadBack):
                self._link.subscribe_again()
            else:
                self._publish(command)

    def _publish(self, message: Lease) -> None:
        # What is repeated is not sent again by a later connection, after what others have said meanwhile.
        last = message.state in ("free", "over")
        if last or self._state.connected:
            self._link.publish(self._topic, encode_message(message), qos=int(last), retain=True)
