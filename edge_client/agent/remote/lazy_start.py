"""The agent's access to remote diagnostics: imports what collects them with the first request."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_client.agent.messenger import Messenger
from edge_client.agent.remote.machine import Collected
from edge_client.agent.service import Service, Topic
from edge_client.agent.session.state import Session
from edge_client.agent.settings import AgentSettings
from edge_client.transport.link_events import Arrived, Inbox
from schemas.messages import DiagnosticRequest, decode_message
from schemas.topics import Channel, DeviceTopic

if TYPE_CHECKING:
    from edge_client.agent.remote.service import RemoteDiagnostics


class LazyDiagnostics(Service):
    """Forwards the agent's calls to the service once an operator has asked."""

    def __init__(self, settings: AgentSettings, inbox: Inbox, messenger: Messenger, *, root: Path) -> None:
        self._settings, self._inbox, self._messenger, self._root = settings, inbox, messenger, root
        self._started: RemoteDiagnostics | None = None

    def tick(self, now: float, session: Session) -> None:
        if self._started is not None:
            self._started.tick()

    def receive(self, topic: Topic, arrived: Arrived) -> bool:
        if not isinstance(topic, DeviceTopic) or topic.channel is not Channel.DOWN_FLEET:
            return False
        message = decode_message(arrived.payload, federation=self._settings.federation)
        if not isinstance(message, DiagnosticRequest):
            return False
        self._start().receive(message)
        return True

    def handle(self, event: Any) -> None:
        if isinstance(event, Collected):
            self._start().on_collected(event)

    def stop(self) -> None:
        if self._started is not None:
            self._started.stop()

    def _start(self) -> "RemoteDiagnostics":
        if self._started is None:
            from edge_client.agent.remote.service import RemoteDiagnostics

            self._started = RemoteDiagnostics(self._settings, self._inbox, self._messenger, root=self._root)
        return self._started
