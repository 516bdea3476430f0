"""The device's part in remote diagnostics: runs the state machine, and collects in a thread of its own."""

import logging
import threading
import time
from functools import partial
from pathlib import Path

from edge_client.agent.remote import collection, machine
from edge_client.agent.server_contact import Messenger
from edge_client.agent.settings import AgentSettings
from edge_client.system.hardware.sysfs import ROOT
from edge_client.transport.broker_link import Inbox
from schemas import errors, messages, topics
from schemas.errors import PeerError

log = logging.getLogger(__name__)


class RemoteDiagnostics:
    """Answers requests; each that is answered is a line of the device's own log."""

    def __init__(
        self, settings: AgentSettings, inbox: Inbox, messenger: Messenger, *, root: Path = ROOT
    ) -> None:
        self._settings, self._inbox, self._messenger, self._root = settings, inbox, messenger, root
        self._state = machine.Diagnostics(settings.federation, settings.device, settings.remote.enabled)
        self._collector: collection.Collector | None = None

    def receive(self, request: messages.DiagnosticRequest) -> None:
        """Handle a request; raises `PeerError` for one to another device."""
        if request.device != self._settings.device:
            raise PeerError(f"'{request.kind}' for {request.device}", reason=errors.Reason.WRONG_SENDER)
        self._step(machine.Requested(request))

    def on_collected(self, event: machine.Collected) -> None:
        if not event.failure:
            log.info("diagnostics %s: an answer of %d characters", event.request, len(event.text))
        self._step(event)

    def tick(self) -> None:
        self._step(machine.Tick())

    def stop(self) -> None:
        if self._collector is not None:
            self._collector.end()

    def _step(self, event: machine.Event) -> None:
        self._state, commands = machine.step(self._state, event, time.monotonic())
        for command in commands:
            self._do(command)

    def _do(self, command: machine.Command) -> None:
        match command:
            case machine.Send(message):
                if isinstance(message, messages.DiagnosticRefusal):
                    reason = str(message.obstacle)
                    text = "an operator's request for diagnostics is refused (%s): %s"
                    log.info(text, reason, message.detail, extra={"reason": reason})
                self._messenger.publish(topics.Channel.UP_FLEET, message)
            case machine.Collect(request):
                log.info("an operator asks for diagnostics (%s): %s", request.request, request.what)
                self._collector = collection.Collector(self._settings, root=self._root)
                collect = partial(self._collect, self._collector, request)
                threading.Thread(target=collect, name="diagnostics", daemon=True).start()
            case machine.Abandon():
                self.stop()

    def _collect(self, collector: collection.Collector, request: messages.DiagnosticRequest) -> None:
        try:
            event = machine.Collected(request.request, collector.collect(request))
        except Exception as error:
            log.exception("diagnostics cannot be collected")
            event = machine.Collected(request.request, failure=f"cannot be collected: {type(error).__name__}")
        self._inbox.put(event)
