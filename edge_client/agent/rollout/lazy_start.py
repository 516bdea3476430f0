"""The agent's access to rollouts: imports `RolloutRuntime` with the first offer, or for an unfinished trial.

Most devices are offered a model once in months, and imports delay every start.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

from edge_client.agent.messenger import Messenger
from edge_client.agent.rollout.events import ComparisonEnded, trial_path
from edge_client.agent.service import Service, Topic
from edge_client.agent.session.state import Session, SessionPhase
from edge_client.agent.settings import AgentSettings
from edge_client.agent.worker import DataChanged
from edge_client.data.local import LocalData
from edge_client.transport.link_events import Arrived, Inbox, LinkDown, LinkUp
from schemas.tensors.chunks import decode_chunk
from schemas.topics import Channel, DeviceTopic

if TYPE_CHECKING:
    from edge_client.agent.rollout.runtime import RolloutRuntime


class LazyRollout(Service):
    """Forwards the agent's calls to the rollout runtime once there is one."""

    def __init__(self, settings: AgentSettings, data: LocalData, inbox: Inbox, messenger: Messenger) -> None:
        self._settings, self._data, self._inbox = settings, data, inbox
        self._publish = partial(messenger.publish, Channel.UP_ROLLOUT)
        self._runtime: RolloutRuntime | None = None
        self._connected = False
        if trial_path(settings.state).exists():
            self._start()

    def connected(self, up: LinkUp, now: float) -> None:
        self._connected = True
        if self._runtime is not None:
            self._runtime.connected()

    def disconnected(self, down: LinkDown) -> None:
        self._connected = False
        if self._runtime is not None:
            self._runtime.disconnected()

    def tick(self, now: float, session: Session) -> None:
        if self._runtime is not None:
            self._runtime.tick(training=session.phase is SessionPhase.WORKING)

    def receive(self, topic: Topic, arrived: Arrived) -> bool:
        match topic:
            case DeviceTopic(channel=Channel.DOWN_ROLLOUT):
                self._start().receive(arrived.payload)
                return True
            case DeviceTopic(channel=Channel.DOWN_BLOB) if self._runtime is not None:
                return self._runtime.take_chunk(decode_chunk(arrived.payload))
        return False

    def handle(self, event: Any) -> None:
        match event:
            case ComparisonEnded():
                self._start().comparison_ended(event)
            case DataChanged(data):
                self._data = data
                if self._runtime is not None:
                    self._runtime.use_data(data)

    def stop(self) -> None:
        if self._runtime is not None:
            self._runtime.stop()

    def _start(self) -> "RolloutRuntime":
        if self._runtime is None:
            from edge_client.agent.rollout.runtime import RolloutRuntime

            self._runtime = RolloutRuntime(self._settings, self._data, self._inbox, self._publish)
            if self._connected:
                self._runtime.connected()
        return self._runtime
