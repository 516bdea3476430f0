"""The agent's access to rollouts: imports `RolloutRuntime` with the first offer, or for an unfinished trial.

Most devices are offered a model once in months, and imports delay every start.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

from edge_client.agent.messenger import Messenger
from edge_client.agent.offers.lazy_service import LazyOfferService
from edge_client.agent.rollout.events import ComparisonEnded, trial_path
from edge_client.agent.service import Topic
from edge_client.agent.settings import AgentSettings
from edge_client.agent.worker import DataChanged
from edge_client.data.local import LocalData
from edge_client.transport.link_events import Arrived, Inbox
from schemas.topics import Channel, DeviceTopic

if TYPE_CHECKING:
    from edge_client.agent.rollout.runtime import RolloutRuntime


class LazyRollout(LazyOfferService["RolloutRuntime"]):
    """Forwards the agent's calls to the rollout runtime once there is one."""

    def __init__(self, settings: AgentSettings, data: LocalData, inbox: Inbox, messenger: Messenger) -> None:
        super().__init__()
        self._settings, self._data, self._inbox = settings, data, inbox
        self._publish = partial(messenger.publish, Channel.UP_ROLLOUT)
        if trial_path(settings.state).exists():
            self._start()

    def receive(self, topic: Topic, arrived: Arrived) -> bool:
        match topic:
            case DeviceTopic(channel=Channel.DOWN_ROLLOUT):
                self._start().receive(arrived.payload)
                return True
            case DeviceTopic(channel=Channel.DOWN_BLOB):
                return self._take_chunk(arrived)
        return False

    def handle(self, event: Any) -> None:
        match event:
            case ComparisonEnded():
                self._start().comparison_ended(event)
            case DataChanged(data):
                self._data = data
                if self._runtime is not None:
                    self._runtime.use_data(data)

    def _start(self) -> "RolloutRuntime":
        if self._runtime is not None:
            return self._runtime
        from edge_client.agent.rollout.runtime import RolloutRuntime

        return self._use(RolloutRuntime(self._settings, self._data, self._inbox, self._publish))
