"""Informs the server that the device is there: births, a death, and questions until a server answers."""

import logging
import math
import random
import time
from collections import deque
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from edge_client.agent import server_contact, worker
from edge_client.agent.eligibility.monitor import EligibilityMonitor
from edge_client.agent.presence import Presence
from edge_client.agent.server_contact import Messenger, ServerContact
from edge_client.agent.service import Service, Topic
from edge_client.agent.session.state import Session, SessionPhase
from edge_client.agent.settings import AgentSettings
from edge_client.agent.worker import Progress
from edge_client.system.hardware import processor, sysfs
from edge_client.system.hardware.memory import memory, resident, storage
from edge_client.system.hardware.power import hottest, power, zones
from edge_client.transport.broker_link import Arrived, LinkDown, LinkUp
from edge_client.transport.paho_client import device_name_conflict
from schemas import errors, messages
from schemas.topics import Channel, DeviceTopic, StateTopic
from schemas.values import BoardState

# Informs the server how far the work is and how the board is. Messages may be lost and are not repeated.

TELEMETRY_S = 1.0
"""Minimum seconds between two progress reports or board readings; shorter phases are not reported."""
LONG_PHASES = ("fetching", "uploading")
"""Phases that the server cannot see by itself: each is reported once if it lasts `TELEMETRY_S`."""


def board_state(*, cores: int, root: Path = sysfs.ROOT, folder: Path | None = None) -> BoardState:
    """The current state, with the free space of `folder`; unreadable and impossible values are omitted."""
    busy, disk = processor.read_load(root), None if folder is None else storage(folder)
    read = {
        "celsius": hottest(zones(root)),
        "battery": power(root).battery,
        "memory_bytes": resident(root),
        "memory_free_bytes": memory(root).free,
        "load": None if busy is None else busy / max(1, cores),
        "disk_free_bytes": None if disk is None else disk.free,
    }
    try:
        return BoardState.model_validate(read)
    except ValidationError as error:
        wrong = {problem["loc"][0] for problem in error.errors()}
        return BoardState.model_validate({key: value for key, value in read.items() if key not in wrong})


class WorkTelemetry(Service):
    """Reports the phases of a device's work, and its state every `telemetry_every_s` seconds.

    `root` is the directory above `/proc` and `/sys`.
    """

    def __init__(
        self, settings: AgentSettings, presence: Presence, messenger: Messenger, *, root: Path = sysfs.ROOT
    ) -> None:
        self._settings, self._presence, self._messenger = settings, presence, messenger
        self._read_board = partial(
            board_state, cores=settings.profile.cores, root=root, folder=settings.state
        )
        self._every_s = settings.telemetry_every_s or math.inf
        self._board_read: tuple[float, BoardState] | None = None
        self._next = self._reported_at = self._since = 0.0
        self._phase = self._reported = "idle"
        self._progress: tuple[messages.Task, dict[str, Any]] | None = None

    def on_connected(self, up: LinkUp, now: float) -> None:
        self._reported_at = now

    def begun(self, task: messages.Task, now: float) -> None:
        self._report(_work_phase(task), task, now)

    def on_progress(self, event: Progress, now: float) -> None:
        """Report an epoch, unless one was reported less than `TELEMETRY_S` ago."""
        details = {"epoch": event.epoch, "epochs": event.epochs, "loss": event.loss}
        self._progress = event.task, details
        if now >= self._next:
            self._next = now + TELEMETRY_S
            self._report("training", event.task, now, **details)

    def tick(self, now: float, session: Session) -> None:
        """Report the state if the last report is too old, or the phase has become a long one."""
        if not session.connected or math.isinf(self._every_s):
            return
        phase, task = _phase(session), session.task
        if phase != self._phase:
            self._phase, self._since = phase, now
        lasts = phase in LONG_PHASES and phase != self._reported and now >= self._since + TELEMETRY_S
        if lasts or now >= self._reported_at + self._every_s:
            of, details = self._progress or (None, {})
            is_current = phase == "training" and task is not None and of == task
            self._report(phase, task, now, **(details if is_current else {}))

    def _report(self, phase: Any, task: messages.Task | None, now: float, **details: Any) -> None:
        self._reported, self._reported_at = phase, now
        report = messages.Telemetry(
            federation=self._settings.federation,
            device=self._settings.device,
            session=self._presence.session,
            phase=phase,
            round=task.round if task else None,
            board=self._board(now),
            **details,
        )
        self._messenger.publish(Channel.UP, report, qos=0)

    def _board(self, now: float) -> BoardState:
        if self._board_read is None or now >= self._board_read[0] + TELEMETRY_S:
            self._board_read = now, self._read_board()
        return self._board_read[1]


def _work_phase(task: messages.Task) -> str:
    return "exporting" if isinstance(task, messages.DeliverTask) else "training"


def _phase(session: Session) -> str:
    """The protocol's name of the session's phase; a delivery is reported without an upload."""
    if session.task is None or session.phase is SessionPhase.IDLE:
        return "idle"
    match session.phase:
        case SessionPhase.FETCHING:
            return "fetching"
        case SessionPhase.REPORTING if isinstance(session.result, messages.Update):
            return "uploading"
        case _:
            return _work_phase(session.task)


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
        if refusal.reason in (errors.Reason.TOO_MANY_REQUESTS, errors.Reason.NOT_SELECTED):
            now, chance = time.monotonic(), random.random()
            self._contact = server_contact.on_rejection(self._contact, now, chance)
        if refusal.reason is errors.Reason.SAME_NAME and refusal.instance == self._presence.instance:
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
