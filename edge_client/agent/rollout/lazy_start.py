"""The agent's access to rollouts of models."""

from functools import partial
from typing import TYPE_CHECKING, Any

from edge_client.agent.messenger import Messenger
from edge_client.agent.offers.lazy_service import LazyOfferService
from edge_client.agent.settings import AgentSettings
from edge_client.agent.worker import DataChanged
from edge_client.data.local import LocalData
from edge_client.transport.link_events import Inbox
from schemas.errors import PeerError
from schemas.messages import ModelOffer, ModelWithdrawal, decode_message
from schemas.topics import Channel
from schemas.values import Reason

if TYPE_CHECKING:
    from edge_client.agent.offers.runtime import OfferRuntime


class LazyRollout(LazyOfferService):
    """Forwards the agent's calls to the runtime of rollouts once there is one."""

    offer_type, channel = ModelOffer, Channel.DOWN_ROLLOUT

    def __init__(self, settings: AgentSettings, data: LocalData, inbox: Inbox, messenger: Messenger) -> None:
        super().__init__()
        self._settings, self._data, self._inbox = settings, data, inbox
        self._publish = partial(messenger.publish, Channel.UP_ROLLOUT)
        if (settings.state / "rollout" / "trial.json").exists():
            self._start()

    def _take(self, payload: bytes) -> bool:
        self._start().receive(decode_rollout_message(payload, self._settings.federation))
        return True

    def handle(self, event: Any) -> None:
        super().handle(event)
        if isinstance(event, DataChanged):
            self._data = event.data

    def _start(self) -> "OfferRuntime":
        if self._runtime is not None:
            return self._runtime
        from edge_client.agent.rollout.installation import make_runtime

        return self._use(make_runtime(self._settings, lambda: self._data, self._inbox, self._publish))


def decode_rollout_message(payload: bytes, federation: str) -> ModelOffer | ModelWithdrawal:
    """The message of a device's rollout topic; raises `PeerError` for any other."""
    message = decode_message(payload, federation=federation)
    if not isinstance(message, ModelOffer | ModelWithdrawal):
        raise PeerError(f"'{message.kind}' does not belong on this topic", reason=Reason.UNKNOWN_KIND)
    return message
