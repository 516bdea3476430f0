"""Services of the agent that import what does their work only when it is needed: imports delay every start.

A device is offered a model or a release once in months, and asked for diagnostics as rarely.
"""

import logging
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from edge_client.agent.offers.trial import Offer, Worked
from edge_client.agent.remote.machine import Collected
from edge_client.agent.server_contact import Messenger
from edge_client.agent.service import Service, Topic
from edge_client.agent.session.state import Session, SessionPhase
from edge_client.agent.settings import AgentSettings
from edge_client.agent.worker import DataChanged
from edge_client.data.local import LocalData
from edge_client.transport.broker_link import Arrived, Inbox, LinkDown, LinkUp
from edge_client.transport.mqtt_client import Link
from schemas import errors, messages, topics
from schemas.errors import PeerError
from schemas.messages.client_update import UpdateCause, UpdateStage
from schemas.tensors.chunks import decode_chunk

if TYPE_CHECKING:
    from edge_client.agent.offers.runtime import OfferRuntime
    from edge_client.agent.remote.service import RemoteDiagnostics
    from edge_client.security.identity.certificate_renewer import CertificateRenewer

log = logging.getLogger(__name__)


class CertificateService(Service):
    """Connects the renewer of the device's certificate to the agent's connection and messages."""

    def __init__(self, renewer: "CertificateRenewer", link: Link, messenger: Messenger) -> None:
        self._renewer, self._link, self._messenger = renewer, link, messenger

    def on_connected(self, up: LinkUp, now: float) -> None:
        self._renewer.on_connected()

    def before_wait(self, session: Session) -> None:
        """Request a certificate when that is due; reconnect with a new one once the device is idle."""
        idle = session.phase is SessionPhase.IDLE
        self._renewer.turn(self._link, time.time(), connected=session.connected, idle=idle)

    def receive(self, topic: Topic, arrived: Arrived) -> bool:
        if not isinstance(topic, topics.EnrolTopic):
            return False
        self._renewer.take(self._messenger.decode(arrived.payload))
        return True


def open_renewer(settings: AgentSettings) -> "CertificateRenewer | None":
    """The renewer of the device's certificate; without a certificate, `cryptography` is not imported."""
    if settings.address.tls is None or settings.address.tls.certificate is None:
        return None
    from edge_client.security.identity.certificate_renewer import make_renewer

    return make_renewer(settings.address.tls, federation=settings.federation, device=settings.device)


class LazyDiagnostics(Service):
    """Forwards the agent's calls to the service once an operator has asked."""

    def __init__(self, settings: AgentSettings, inbox: Inbox, messenger: Messenger, *, root: Path) -> None:
        self._settings, self._inbox, self._messenger, self._root = settings, inbox, messenger, root
        self._started: RemoteDiagnostics | None = None

    def tick(self, now: float, session: Session) -> None:
        if self._started is not None:
            self._started.tick()

    def receive(self, topic: Topic, arrived: Arrived) -> bool:
        if not isinstance(topic, topics.DeviceTopic) or topic.channel is not topics.Channel.DOWN_FLEET:
            return False
        message = messages.decode_message(arrived.payload, federation=self._settings.federation)
        if not isinstance(message, messages.DiagnosticRequest):
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


class LazyOfferService(Service):
    """Forwards the agent's calls to the runtime of a kind of offer, made with the first one.

    Does nothing until the subclass hands the runtime to `_use`.
    """

    offer_type: ClassVar[type[Offer]]
    channel: ClassVar[topics.Channel]

    def __init__(self) -> None:
        self._runtime: OfferRuntime | None = None
        self._connected = False

    def on_connected(self, up: LinkUp, now: float) -> None:
        self._connected = True
        if self._runtime is not None:
            self._runtime.on_connected()

    def on_disconnected(self, down: LinkDown) -> None:
        self._connected = False
        if self._runtime is not None:
            self._runtime.on_disconnected()

    def tick(self, now: float, session: Session) -> None:
        if self._runtime is not None:
            self._runtime.tick(training=session.phase is SessionPhase.WORKING)

    def handle(self, event: Any) -> None:
        """Pass on the end of work on an offer of this kind."""
        is_ours = isinstance(event, Worked) and isinstance(event.work.offer, self.offer_type)
        if self._runtime is not None and is_ours:
            self._runtime.on_worked(event)

    def receive(self, topic: Topic, arrived: Arrived) -> bool:
        """Take offers, withdrawals and chunks of the offered file."""
        match topic:
            case topics.DeviceTopic(channel=topics.Channel.DOWN_BLOB):
                return self._runtime is not None and self._runtime.take_chunk(decode_chunk(arrived.payload))
            case topics.DeviceTopic(channel=self.channel):
                return self._take(arrived.payload)
        return False

    def _take(self, payload: bytes) -> bool:
        """Take a message of the kind's channel; False: it is another service's."""
        raise NotImplementedError

    def stop(self) -> None:
        if self._runtime is not None:
            self._runtime.stop()

    def _use(self, runtime: "OfferRuntime") -> "OfferRuntime":
        self._runtime = runtime
        if self._connected:
            runtime.on_connected()
        return runtime


class LazyRollout(LazyOfferService):
    """Forwards the agent's calls to the runtime of rollouts once there is one."""

    offer_type, channel = messages.ModelOffer, topics.Channel.DOWN_ROLLOUT

    def __init__(self, settings: AgentSettings, data: LocalData, inbox: Inbox, messenger: Messenger) -> None:
        super().__init__()
        self._settings, self._data, self._inbox = settings, data, inbox
        self._publish = partial(messenger.publish, topics.Channel.UP_ROLLOUT)
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


def decode_rollout_message(payload: bytes, federation: str) -> messages.ModelOffer | messages.ModelWithdrawal:
    """The message of a device's rollout topic; raises `PeerError` for any other."""
    message = messages.decode_message(payload, federation=federation)
    if not isinstance(message, messages.ModelOffer | messages.ModelWithdrawal):
        raise PeerError(f"'{message.kind}' does not belong on this topic", reason=errors.Reason.UNKNOWN_KIND)
    return message


class LazyClientUpdate(LazyOfferService):
    """Forwards the agent's calls to the update's runtime once there is one.

    `settings.install_root` is the folder of the launcher that has started this process; without one a release
    is refused.
    """

    offer_type, channel = messages.ClientOffer, topics.Channel.DOWN_FLEET

    def __init__(self, settings: AgentSettings, inbox: Inbox, messenger: Messenger) -> None:
        super().__init__()
        self._settings, self._inbox = settings, inbox
        self._publish = partial(messenger.publish, topics.Channel.UP_FLEET)
        self._trouble = ""
        if settings.install_root is not None and (settings.install_root / "update.json").exists():
            self._start()

    def _take(self, payload: bytes) -> bool:
        message = messages.decode_message(payload, federation=self._settings.federation)
        if not isinstance(message, messages.ClientOffer | messages.ClientWithdrawal):
            return False
        runtime = self._start()
        if runtime is None:
            self._publish(self._cannot(message))
        else:
            runtime.receive(message)
        return True

    def _cannot(self, message: messages.ClientOffer | messages.ClientWithdrawal) -> messages.ClientReport:
        """The answer of a client that no launcher has started, or whose folder cannot be used."""
        without = "this client was not started by a launcher, which `edge-client install` makes"
        return messages.ClientReport(
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
