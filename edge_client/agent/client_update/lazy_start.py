"""The agent's access to updates of the client."""

import logging
from functools import partial
from typing import TYPE_CHECKING

from edge_client.agent.messenger import Messenger
from edge_client.agent.offers.lazy_service import LazyOfferService
from edge_client.agent.settings import AgentSettings
from edge_client.transport.link_events import Inbox
from schemas.messages import ClientOffer, ClientReport, ClientWithdrawal, decode_message
from schemas.messages.client_update import UpdateCause, UpdateStage
from schemas.topics import Channel

if TYPE_CHECKING:
    from edge_client.agent.offers.runtime import OfferRuntime

log = logging.getLogger(__name__)


class LazyClientUpdate(LazyOfferService):
    """Forwards the agent's calls to the update's runtime once there is one.

    `settings.install_root` is the folder of the launcher that has started this process; without one a release
    is refused.
    """

    offer_type, channel = ClientOffer, Channel.DOWN_FLEET

    def __init__(self, settings: AgentSettings, inbox: Inbox, messenger: Messenger) -> None:
        super().__init__()
        self._settings, self._inbox = settings, inbox
        self._publish = partial(messenger.publish, Channel.UP_FLEET)
        self._trouble = ""
        if settings.install_root is not None and (settings.install_root / "update.json").exists():
            self._start()

    def _take(self, payload: bytes) -> bool:
        message = decode_message(payload, federation=self._settings.federation)
        if not isinstance(message, ClientOffer | ClientWithdrawal):
            return False
        runtime = self._start()
        if runtime is None:
            self._publish(self._cannot(message))
        else:
            runtime.receive(message)
        return True

    def _cannot(self, message: ClientOffer | ClientWithdrawal) -> ClientReport:
        """The answer of a client that no launcher has started, or whose folder cannot be used."""
        without = "this client was not started by a launcher, which `edge-client install` makes"
        return ClientReport(
            federation=self._settings.federation,
            device=self._settings.device,
            rollout=message.rollout,
            version=message.version,
            stage=UpdateStage.REFUSED,
            cause=UpdateCause.NO_LAUNCHER,
            detail=self._trouble or without,
        )

    def _start(self) -> "OfferRuntime | None":
        """The runtime; None without a launcher, or if its folder cannot be written to."""
        root = self._settings.install_root
        if self._runtime is not None or root is None:
            return self._runtime
        from edge_client.agent.client_update.installation import make_runtime
        from edge_client.agent.client_update.slots import ClientSlots

        try:
            runtime = make_runtime(self._settings, ClientSlots(root), self._inbox, self._publish)
        except OSError as error:
            self._trouble = f"the launcher's folder cannot be used: {error}"[:500]
            log.warning("the client cannot be updated: %s", error)
            return None
        return self._use(runtime)
