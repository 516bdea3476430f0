"""The gateway of a site: one thread handles all events; examining and adding is done in another."""

import logging
import os
import queue
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edge_client.storage.blob_store import BlobStore
from edge_client.system.watchdog import watchdog_of
from edge_client.transport.broker_link import Arrived, BrokerAddress, Inbox, LinkDown, LinkEvent, LinkUp
from edge_client.transport.event_loop import EventLoop, Stop
from edge_server.coordinator.gateway import intake, links
from edge_server.coordinator.gateway.command_runner import CommandRunner, Progress
from edge_server.coordinator.gateway.site_work import SiteWork
from edge_server.rounds.events import Tick
from edge_server.rounds.gateway import events, machine
from edge_server.rounds.gateway.state import Gateway
from edge_server.storage.gateway_journal import GatewayJournal
from schemas import errors, messages, topics
from schemas.messages.remote import DiagnosticAnswer
from schemas.tensors.chunks import CHUNK_SIZES, NO_CHUNKS

log = logging.getLogger(__name__)

TICK_S = 0.25


class GatewayStopped(errors.EdgeError):
    """The gateway cannot go on."""


class SiteGateway:
    """Runs the gateway of one site in `folder` until it is stopped, or `once` until a run ends."""

    def __init__(
        self,
        above: BrokerAddress,
        below: BrokerAddress,
        *,
        federation: str,
        site: str,
        folder: Path,
        once: bool = False,
        show: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._site, self._once, self._over = site, once, False
        self.inbox: Inbox = queue.SimpleQueue()
        self._store = BlobStore(folder / "blobs")
        self._journal = GatewayJournal(folder / "gateway.sqlite", federation, site)
        self._work = SiteWork(site, folder, self._store, self._journal)
        self.gateway = reopen_gateway(self._journal, self._store, federation, site)
        self._partial = self._store.parts()
        session = self._journal.next_session()
        self.above = links.LinkAbove(
            above, self.inbox, federation=federation, site=site, session=session, store=self._store
        )
        self.below = links.LinkBelow(below, self.inbox, federation=federation, store=self._store)
        self._runner = CommandRunner(
            self.above, self.below, self._store, self._journal, self._work, self.inbox, lambda: self.gateway
        )
        self._progress = Progress(site, self.above, show)
        self._early, self._passed = intake.EarlyBirths(), intake.PassedRequests()
        self._fitted: int | None = None
        self.loop = EventLoop(self.inbox, TICK_S, tick=self._tick, handle=self._handle)
        self._watchdog = watchdog_of(os.environ)

    def run(self) -> None:
        """Serve the site; raises `GatewayStopped` where the connection can never be made."""
        self.below.link.open()
        self.above.link.open()
        self._watchdog.ready()
        try:
            self.loop.run(until=lambda: self._over)
        finally:
            self.close()

    def stop(self) -> None:
        """Stop soon; may be called from a signal handler or another thread."""
        self.inbox.put(Stop())

    def close(self) -> None:
        self._watchdog.stopping()
        self.above.link.close(with_will=True)
        self.below.link.close()
        self._runner.close()
        self._journal.close()

    def _tick(self, now: float) -> None:
        self.step(Tick())
        self.below.connection.echo.tick(now)
        self._fit()
        self._watchdog.alive(now)

    def _handle(self, event: Any) -> None:
        match event:
            case links.FromAbove(link_event):
                self._handle_above(link_event)
            case links.FromBelow(link_event):
                self._handle_below(link_event)
            case BaseException():
                raise event
            case Stop():
                self._over = True
                self._progress.say("stopped; the same command continues")
            case _:
                self.step(event)

    # --- above ---
    def _handle_above(self, event: LinkEvent) -> None:
        if not isinstance(event, Arrived):
            self.above.link.handle(event)
        match event:
            case LinkUp(session):
                self._journal.reserve_sessions(session)
                self._progress.say(f"connected to {self.above.address}")
                self.step(events.LinkedAbove(session))
            case LinkDown(reason, lasting=lasting, taken_over=taken_over):
                if taken_over:
                    why = f"another gateway of the site '{self._site}' has connected to {self.above.address}"
                    raise GatewayStopped(f"{why}: {reason}")
                if lasting:
                    raise GatewayStopped(f"--upstream {self.above.address}: {reason}")
                self._progress.say(f"no connection to {self.above.address}: {reason}; trying again")
                self.step(events.CutAbove())
            case Arrived(topic, payload):
                self.above.received += len(payload)
                if payload and (found := intake.read_above(topic, payload, self.gateway)) is not None:
                    self._take_above(found)

    def _take_above(self, event: events.Event) -> None:
        match event:
            case events.MessageForDevice(message=messages.DiagnosticRequest() as request):
                self._passed.admit(request, time.monotonic())
            case events.MessageForSite(messages.SiteTerms() as terms):
                self._work.take_terms(terms)
                self._progress.terms(terms)
            case events.MessageForSite(messages.Refusal(reason=errors.Reason.NOT_ENTITLED, detail=detail)):
                raise GatewayStopped(f"--site {self._site}: {detail}")
        self.step(event)
        if isinstance(event, events.MessageForSite) and isinstance(event.message, messages.SiteTerms):
            for topic, payload in self._early.take(self.gateway):
                self._take_below(topic, payload)
        if isinstance(event, events.Announced):
            self._progress.on_announcement(event.message, self.gateway)
            if isinstance(event.message, messages.FederationEnd) and self._once and not event.message.goes_on:
                self._over = True

    # --- below ---
    def _handle_below(self, event: LinkEvent) -> None:
        now = time.monotonic()
        received = self.below.connection.receive(event, now)
        if isinstance(event, LinkUp):
            self._progress.say(f"serving the site's devices on {self.below.connection.address}")
            self.below.announce_again()
        elif isinstance(event, LinkDown):
            self._progress.say(self.below.connection.trouble)
        if received is not None and received[1] and not self._early.keep(*received, self.gateway):
            self._take_below(*received)

    def _take_below(self, topic: topics.DeviceTopic | topics.SiteTopic, payload: bytes) -> None:
        try:
            found = intake.read_below(topic, payload, self.gateway)
        except errors.PeerError as error:
            self._refuse(topic.device, error, time.monotonic())
            return
        if isinstance(found, events.DeviceSpoke) and isinstance(found.message, DiagnosticAnswer):
            # Answers to an operator within the site stay there.
            found = found if self._passed.is_answer(found.message) else None
        if found is not None:
            self.step(self._with_bytes(found))

    def _refuse(self, device: str, error: errors.PeerError, now: float) -> None:
        """Log the fault, and tell who spoke."""
        log.warning("%s: ignored (%s): %s", device, error.reason, error, extra={"reason": error.reason})
        if device:
            self.below.tell_stranger(messages.Refusal.of(error, self.gateway.federation, device), device, now)

    def _with_bytes(self, event: events.Event) -> events.Event:
        """A claim with what is known of its blob."""
        if not isinstance(event, events.DeviceSpoke) or not isinstance(event.message, messages.Update):
            return event
        update, have = event.message, NO_CHUNKS
        if update.blob.digest in self._partial:
            self._partial.discard(update.blob.digest)
            have = self._store.present(update.blob)
        most = self._work.most_bytes(self.gateway.tasks.get(update.device))
        return events.DeviceSpoke(update, have, most)

    def _fit(self) -> None:
        """Note the size of packets that the site's broker passes on, once it is known."""
        found = self.below.connection.chunk_bytes
        if found is None or found == self._fitted:
            return
        self._fitted = found
        self.below.link.fit(found)
        if found < CHUNK_SIZES[0]:
            self._progress.say(f"the site's broker passes on no packets above {found // 1024} kB")

    # --- the machine ---
    def step(self, event: events.Event) -> None:
        before = self.gateway
        self.gateway, commands = machine.step(before, event, time.monotonic())
        for command in commands:
            self._runner.do(command)


def reopen_gateway(journal: GatewayJournal, store: BlobStore, federation: str, site: str) -> Gateway:
    """The gateway as its journal and its disk have it; every receipt is sent again."""
    updates = {
        device: update
        for device, update in journal.updates().items()
        if update.receipt is not None and (update.receipt.reason or update.blob.digest in store)
    }
    return Gateway(
        federation,
        site,
        before=journal.devices(),
        tasks=journal.tasks(),
        updates=updates,
        pending=frozenset(updates),
        held=store.digests(),
    )


def check_brokers(above: BrokerAddress, below: BrokerAddress) -> None:
    """Raise `ConfigError` if the site has no broker of its own."""
    if (above.host, above.port, above.path) == (below.host, below.port, below.path):
        raise errors.ConfigError(
            "this is the upstream broker", key=f"--broker {below}", remedy="the site needs one of its own"
        )
