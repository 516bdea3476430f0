"""Informs the server that the device is there: births, a death, and questions until a server answers."""

import logging
import random
import time
from collections import deque
from typing import Any

from edge_client.agent import server_contact, worker
from edge_client.agent.eligibility.monitor import EligibilityMonitor
from edge_client.agent.messenger import Messenger
from edge_client.agent.presence import Presence
from edge_client.agent.server_contact import ServerContact
from edge_client.agent.service import Service, Topic
from edge_client.agent.session.state import Session
from edge_client.agent.settings import AgentSettings
from edge_client.transport.link_events import Arrived, LinkDown, LinkUp
from edge_client.transport.paho_client import device_name_conflict
from schemas import messages, values
from schemas.topics import Channel, DeviceTopic, StateTopic

log = logging.getLogger(__name__)

NO_ANSWER = (
    "connected, but no server has answered for %.0f s: does `edge-server run` run, or is a job of"
    " `edge-server serve` to come, is its federation called '%s', and is its broker %s?"
)
RUN_OVER, REFUSED = b'"federation-end"', b'"refusal"'
LOOK_AT_MODEL_S = 5.0  # Seconds between two looks at which model is in use: births state it
MAX_NAME_CONFLICTS = 3
"""After this many refusals because another device has the same name, this device gives up."""
REMEMBERED = 32  # Own connections whose last wills may still come
MAX_FOREIGN_RETURNS = 2 * MAX_NAME_CONFLICTS
"""Returns of another device of this name after which it evidently does not end by itself. A server, if there
is one, has decided before."""


class Announcer(Service):
    """Publishes births and the death; warns where no server answers."""

    def __init__(
        self,
        settings: AgentSettings,
        presence: Presence,
        messenger: Messenger,
        eligibility: EligibilityMonitor,
    ) -> None:
        self._settings, self._presence = settings, presence
        self._messenger, self._eligibility = messenger, eligibility
        self._connected = False
        self._contact = ServerContact()
        self._name_conflicts = 0
        self._began = self._first_foreign = 0
        self._foreign: int | None = None
        self._foreign_returns = 0
        self._own_sessions: deque[int] = deque(maxlen=REMEMBERED)
        self._next_look = 0.0

    def on_connected(self, up: LinkUp, now: float) -> None:
        self._connected = True
        self._began = self._began or up.session
        self._own_sessions.append(up.session)
        self._contact = server_contact.on_connected(now)
        self._publish(self._presence.begin_session(up.session, self._eligibility.verdict))

    def on_disconnected(self, down: LinkDown) -> None:
        self._connected = False
        self._contact = ServerContact()

    def tick(self, now: float, session: Session) -> None:
        self._contact, commands = server_contact.tick(self._contact, now)
        for command in commands:
            match command:
                case server_contact.Ask():
                    self._messenger.publish(Channel.UP, self._presence.probe())
                case server_contact.RepeatBirth():
                    self.announce()
                case server_contact.WarnNoAnswer(seconds):
                    log.warning(NO_ANSWER, seconds, self._settings.federation, self._settings.address)
        if now >= self._next_look:
            self._next_look = now + LOOK_AT_MODEL_S
            if self._presence.has_new_model():
                self.announce()

    def receive(self, topic: Topic, arrived: Arrived) -> bool:
        """Note that a server answers: a retained message may be of one that is gone."""
        if isinstance(topic, DeviceTopic) and topic.channel is Channel.BIRTH:
            self._read_own_birth(arrived.payload)
            return True
        kind = arrived.payload[:40]
        # `edge-server serve` answers the question for the unknown blob, too.
        is_service = (
            isinstance(topic, DeviceTopic) and topic.channel is Channel.DOWN_FLEET and REFUSED in kind
        )
        if is_service or (arrived.retained and isinstance(topic, StateTopic) and RUN_OVER in kind):
            if not self._contact.at_rest:
                log.info("no run of '%s' is going on: waiting for the next one", self._settings.federation)
            self._contact = server_contact.run_over(self._contact)
        elif not arrived.retained:
            self._contact = server_contact.on_answer(self._contact)
        return is_service

    def handle(self, event: Any) -> None:
        if isinstance(event, worker.DataChanged):
            self._presence.describe(event.data)
            self.announce()

    def announce(self) -> None:
        """Publish the birth again, with the current data and eligibility."""
        if self._connected:
            self._publish(self._presence.birth(self._eligibility.verdict))

    def on_refusal(self, refusal: messages.Refusal) -> None:
        """The server rejects the birth: repeat it later; raises `ConfigError` if the name is taken."""
        if refusal.reason in (values.Reason.TOO_MANY_REQUESTS, values.Reason.NOT_SELECTED):
            now, chance = time.monotonic(), random.random()
            self._contact = server_contact.on_rejection(self._contact, now, chance)
        if refusal.reason is values.Reason.SAME_NAME and refusal.instance == self._presence.instance:
            self._name_conflicts += 1
            log.error("another device is called %s: %s", self._settings.device, refusal.detail)
            if self._name_conflicts >= MAX_NAME_CONFLICTS:
                raise device_name_conflict(self._settings.device, refusal.detail)

    def _read_own_birth(self, payload: bytes) -> None:
        """Look who has this device's name; raises `ConfigError` if another device had it first.

        A single foreign session may be of this device's process before. A second, later one is of a device
        that connects now; mostly its last will tells, since this one has just ended its connection.
        """
        message = messages.decode_message(payload, federation=self._settings.federation) if payload else None
        if not isinstance(message, messages.Birth | messages.Death) or self._is_own(message):
            return
        last, self._foreign = self._foreign, message.session
        if last is None:
            self._first_foreign = message.session
        elif message.session > last:
            who = getattr(message, "origin", "") or "another device"
            self._share_name(who)

    def _is_own(self, message: messages.Birth | messages.Death) -> bool:
        """Whether it is of this process: by its instance, or by its session where none is stated.

        Sessions of two devices that disconnect each other lie between each other.
        """
        if instance := getattr(message, "instance", ""):
            return bool(instance == self._presence.instance)
        return message.session in self._own_sessions

    def _share_name(self, other: str) -> None:
        """The later of two devices of one name ends; the earlier one says so and goes on.

        If both connected at once, neither may have seen the other's first session: each takes itself for the
        earlier one. Then chance decides, at each return of the other.
        """
        self._foreign_returns += 1
        stays = self._foreign_returns > MAX_FOREIGN_RETURNS
        if self._began > self._first_foreign or (stays and random.random() < 0.5):
            self._name_conflicts = MAX_NAME_CONFLICTS
            raise device_name_conflict(self._settings.device, f"{other} came first under this name")
        if not self._name_conflicts:
            self._name_conflicts = 1
            log.error("another device is called %s: it came later, and ends by itself", self._settings.device)

    def stop(self) -> None:
        """Publish the death, which a clean disconnect does not, unless another device has the name."""
        if self._connected and self._name_conflicts < MAX_NAME_CONFLICTS:
            self._messenger.publish(Channel.BIRTH, self._presence.death(), retain=True)

    def _publish(self, birth: messages.Birth) -> None:
        self._messenger.publish(Channel.BIRTH, birth, retain=True)
