"""The device's event loop: it passes what happens to the agent's services.

One thread owns the services; the MQTT client, the worker and other threads only put events into its inbox.
"""

import logging
import os
import queue
import time
from pathlib import Path
from typing import Any

from edge_client.agent.assembly import assemble
from edge_client.agent.restart import RestartWanted
from edge_client.agent.session.events import Stopping
from edge_client.agent.settings import AgentSettings
from edge_client.data.local import DataFeed, LocalData
from edge_client.system.hardware.sysfs import ROOT
from edge_client.system.watchdog import watchdog_of
from edge_client.transport import broker_link, paho_client
from edge_client.transport.event_loop import EventLoop, Stop
from schemas import errors, topics

__all__ = ["Agent", "AgentSettings"]

log = logging.getLogger(__name__)

TICK_S = 0.25


class Agent:
    """Runs one device until it is stopped.

    `root` is the directory above `/proc` and `/sys`. `feed` is asked before each task, and now and then
    between tasks, whether the data has changed. `restart_wanted`: it has ended for another version to start.
    """

    def __init__(
        self, settings: AgentSettings, data: LocalData, *, root: Path = ROOT, feed: DataFeed | None = None
    ) -> None:
        self.inbox: broker_link.Inbox = queue.SimpleQueue()
        self._settings = settings
        self.link, self.runner, self.services = assemble(settings, data, self.inbox, root=root, feed=feed)
        self._attempts = paho_client.ConnectionAttempts(settings.address, settings.keep_trying)
        self._watchdog = watchdog_of(os.environ)
        self.loop = EventLoop(self.inbox, TICK_S, tick=self._tick, handle=self._handle)
        self._stopped = self.restart_wanted = False

    def run(self) -> str | None:
        """Take part until stopped; returns the outcome of the last run that ended, None if none has."""
        log.info("connecting to %s as %s", self._settings.address, self._settings.device)
        self.link.open()
        self._watchdog.ready()
        try:
            self.loop.run(until=lambda: self.is_over)
        finally:
            if not self.restart_wanted:
                self._watchdog.stopping()
            for service in reversed(self.services):
                service.stop()
            self.link.close()
        return self.runner.outcome

    def stop(self) -> None:
        """End soon; may be called from a signal handler or another thread."""
        self.inbox.put(Stop())

    @property
    def is_over(self) -> bool:
        """Whether the agent was stopped, or the one run that it takes part in has ended."""
        return self._stopped or (self._settings.once and self.runner.outcome is not None)

    def _tick(self, now: float) -> None:
        self._watchdog.alive(now)
        for service in self.services:
            service.tick(now, self.runner.session)
        self._prepare_wait()

    def _prepare_wait(self) -> None:
        for service in self.services:
            service.before_wait(self.runner.session)

    def _handle(self, event: Any) -> None:
        match event:
            case Stop() | RestartWanted():
                self.restart_wanted = isinstance(event, RestartWanted)
                self._stopped = True
                self.runner.step(Stopping())
                if not self.restart_wanted:
                    log.info("stopped; the same command continues with what is in the state folder")
            case broker_link.LinkUp():
                self._on_connected(event)
            case broker_link.LinkDown():
                self._on_disconnected(event)
            case broker_link.Arrived(topic):
                parsed = topics.parse_topic(topic)
                if not any(service.receive(parsed, event) for service in self.services):
                    raise errors.PeerError(f"nothing is expected on {topic}")
            case broker_link.Confirmed() | broker_link.NotGranted():
                self.link.handle(event)
            case _:
                for service in self.services:
                    service.handle(event)
        if not self.is_over:
            self._prepare_wait()

    def _on_connected(self, up: broker_link.LinkUp) -> None:
        self.link.handle(up)
        log.info("connected")
        self._attempts = self._attempts.on_success()
        self.runner.limit_chunks(self._attempts.chunk_bytes(up.max_packet))
        now = time.monotonic()
        for service in self.services:
            service.on_connected(up, now)

    def _on_disconnected(self, down: broker_link.LinkDown) -> None:
        self.link.handle(down)
        if not down.downgrade:
            self._attempts, message = self._attempts.on_failure(down)
            log.warning("%s", message)
        for service in self.services:
            service.on_disconnected(down)
