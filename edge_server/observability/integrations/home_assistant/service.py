"""The Home Assistant bridge: its own MQTT connection and thread; no round waits for Home Assistant."""

import logging
import threading
import time
from collections.abc import Callable, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from edge_client.transport import broker_link
from edge_client.transport.broker_link import BrokerAddress
from edge_server.config.object_store import HomeAssistantSettings
from edge_server.observability.integrations.bridge import Bridge
from edge_server.observability.integrations.home_assistant import states, topics
from edge_server.observability.integrations.home_assistant.model_versions import ModelVersionReader
from edge_server.observability.integrations.home_assistant.states import Installation
from edge_server.releases.registry.registry import Registry
from edge_server.releases.rollout import open as opening
from edge_server.releases.rollout.journal import RolloutJournal
from edge_server.releases.rollout.progress import target_line
from edge_server.releases.rollout.service import Interrupted, RolloutService
from edge_server.releases.rollout.state import Rollout, RolloutPhase, RolloutRules
from edge_server.releases.rollout.target import TargetStatus
from schemas.errors import EdgeError
from schemas.messages.rollout import TrialTerms

log = logging.getLogger(__name__)

ReportInstallation = Callable[[Installation], None]
PATIENCE_S = 60.0  # Seconds to wait for an absent device before the rollout is withdrawn
PERCENT = {
    TargetStatus.WAITING: 0,
    TargetStatus.ASKED: 5,
    TargetStatus.FETCHING: 10,
    TargetStatus.COMPARING: 40,
    TargetStatus.SWITCHING: 60,
    TargetStatus.WATCHING: 70,
    TargetStatus.KEPT: 100,
}  # Progress in percent by stage; a device reports its stage, not its remaining time


def rules_for(device: str, watch_s: float) -> RolloutRules:
    return RolloutRules(
        only=(device,),
        canary="100%",
        groups=1,
        success=1.0,
        gather_s=0.0,
        away_s=PATIENCE_S,
        terms=TrialTerms(watch_s=watch_s),
    )


def progress_of(device: str, rollout: Rollout) -> Installation:
    target = rollout.targets.get(device)
    if target is None:
        return Installation(device, 0, f"{rollout.version}: waiting for {device}.")
    return Installation(device, PERCENT.get(target.status, 0), f"{rollout.version}: {target_line(target)}.")


def outcome_of(device: str, rollout: Rollout) -> Installation:
    """The outcome of a rollout; a device that rolled back has reported its reason."""
    target = rollout.targets.get(device)
    about = target_line(target) if target is not None and target.report is not None else ""
    text = about if rollout.phase is RolloutPhase.FINISHED else (about or rollout.why)
    return Installation(device, None, f"{rollout.version}: {text}.")


class Installer:
    """Rolls the approved version out to one device at a time; calls `report` from its own thread."""

    def __init__(
        self,
        registry: Registry,
        federation: str,
        address: BrokerAddress,
        watch_s: float,
        report: ReportInstallation,
    ) -> None:
        self._registry, self._federation, self._address = registry, federation, address
        self._watch_s, self._report = watch_s, report
        self.busy_with, self.thread = "", threading.Thread()
        self.service: RolloutService | None = None
        self._absent_since: float | None = None

    def begin(self, device: str) -> bool:
        """Begin an installation, or report why it cannot begin; returns whether it has begun."""
        if self.thread.is_alive():
            if device != self.busy_with:
                text = f"{self.busy_with} is still installing: press Install again when it has finished."
                self._report(Installation(device, None, text))
            return False
        self.busy_with, self.service, self._absent_since = device, None, None
        self._report(Installation(device, 0))
        self.thread = threading.Thread(target=self._run, args=(device,), name="installing", daemon=True)
        self.thread.start()
        return True

    def close(self) -> None:
        """Interrupt a rollout that is under way; the same button resumes it."""
        if self.service is not None:
            self.service.interrupt()
        if self.thread.is_alive():
            self.thread.join(timeout=10)

    def _run(self, device: str) -> None:
        try:
            ended = self.roll_out(device)
        except Interrupted:
            return
        except EdgeError as error:
            self._report(Installation(device, None, str(error)))
        except Exception as error:
            log.exception("the model for %s could not be rolled out", device)
            self._report(Installation(device, None, f"{type(error).__name__}: {error}"))
        else:
            self._report(outcome_of(device, ended))

    def roll_out(self, device: str) -> Rollout:
        registry = Registry.existing(self._registry.folder)
        version = opening.wanted_version(registry, None, self._federation)
        files = opening.offered_files(registry, version)
        paths = {file.ref.digest: registry.onnx(version.version, tier) for tier, file in files.items()}
        with opening.rollout_lock(registry, self._federation):
            journal = RolloutJournal(registry)
            fresh = opening.model_rollout(version, rules_for(device, self._watch_s), files)
            rollout = opening.begin_for_devices(journal, fresh)
            self.service = RolloutService(rollout, journal, self._address, paths, self.show_progress)
            return self.service.run()

    def show_progress(self, rollout: Rollout, no_link: str) -> None:
        """Report the rollout's progress; withdraw it where the device is absent for too long."""
        device = self.busy_with
        self._report(progress_of(device, rollout))
        target = rollout.targets.get(device)
        lost = target is None or target.status is TargetStatus.AWAY
        now = time.monotonic()
        self._absent_since = (self._absent_since or now) if lost else None
        gone = target is not None and target.status is TargetStatus.AWAY
        late = self._absent_since is not None and now - self._absent_since > PATIENCE_S
        if (
            (gone or late)
            and rollout.phase in (RolloutPhase.GATHERING, RolloutPhase.RUNNING)
            and self.service is not None
        ):
            self.service.withdraw(f"{device} is not connected")


TURN_S = 0.5
SETTLED_S = 30.0  # Seconds after connecting until the broker has delivered every retained message


class HomeAssistant(Bridge):
    """Publishes a run to Home Assistant; `rollout` is the broker address of the Install button."""

    def __init__(
        self,
        settings: HomeAssistantSettings,
        federation: str,
        registry: Path,
        *,
        address: broker_link.BrokerAddress,
        rollout: broker_link.BrokerAddress,
        settled_s: float = SETTLED_S,
    ) -> None:
        self._topics, self._settled_s = topics.HomeAssistantTopics(federation, settings.prefix), settled_s
        super().__init__(
            "home-assistant",
            address,
            every_s=TURN_S,
            client_id=f"{federation}-home",
            filters=self._topics.filters,
            will=lambda session: (self._topics.status, states.OFFLINE),
        )
        self._installer = Installer(
            Registry(registry), federation, rollout, settings.watch_s, lambda event: self.inbox.put(event)
        )
        self._versions = ModelVersionReader(registry, federation)
        self._messages = states.DeviceMessages(self._topics)
        self._installations: dict[str, states.Installation] = {}
        self.sent = topics.SentMessages()
        self._retained = RetainedDevices()
        self._up_since: float | None = None

    def close(self) -> None:
        """Disconnect; without a server every device is shown as unavailable."""
        self._installer.close()
        self._end_thread()
        self.sent = replace(self.sent, sent_at={})  # The last states wait for no distance to those before
        self._turn(time.monotonic())
        self._link.publish(self._topics.status, states.OFFLINE, retain=True)
        self._link.close()

    # --- incoming ---
    def _handle(self, event: Any) -> None:
        match event:
            case broker_link.Arrived(topic, payload):
                self._on_message(topic, payload)
            case broker_link.LinkUp():
                self._up_since = time.monotonic()
                self.sent = topics.forget_sent(self.sent)
                self._link.publish(self._topics.status, states.ONLINE, retain=True)
            case broker_link.LinkDown(reason):
                self._up_since = None
                log.info("Home Assistant: no connection to the broker: %s; trying again", reason)
                self._link.handle(event)
            case states.Installation(device):
                self._versions.expire()
                self._installations[device] = event

    def _on_message(self, topic: str, payload: bytes) -> None:
        match self._topics.parse(topic):
            case ("install", device) if payload == topics.INSTALL:
                # A retained press would start an installation at every reconnect.
                self._link.publish(topic, b"", retain=True)
                if self._is_connected(device):
                    self._installer.begin(device)
            case (("birth" | "config") as kind, device):
                self._retained.on_retained(kind, device, empty=not payload)

    def _is_connected(self, device: str) -> bool:
        latest = self._latest
        return latest is not None and any(view.device == device for view in latest.devices)

    # --- outgoing ---
    def _turn(self, now: float) -> None:
        if self._latest is None or self._up_since is None:
            return
        state = states.CurrentState(self._latest, self._versions.current(now), self._installations)
        present = {view.device for view in state.snapshot.devices}
        settled = now >= self._up_since + self._settled_s
        gone, away = self._retained.absent(present, settled=settled)
        messages = self._messages.wanted_messages(state, gone=gone, away=away)
        messages |= states.clear_devices(self._topics, gone & self._retained.published)
        self.sent, new = topics.due(self.sent, messages, now)
        for topic, payload in new:
            self._link.publish(topic, payload, retain=True)


@dataclass
class RetainedDevices:
    """Devices with a retained birth (`born`), with a cleared birth (`revoked`), with a discovery message."""

    born: set[str] = field(default_factory=set)
    revoked: set[str] = field(default_factory=set)
    published: set[str] = field(default_factory=set)

    def on_retained(self, kind: Literal["birth", "config"], device: str, *, empty: bool) -> None:
        """A birth or a discovery message of a device arrived; an empty one clears it."""
        held = self.born if kind == "birth" else self.published
        (held.discard if empty else held.add)(device)
        if kind == "birth":
            (self.revoked.add if empty else self.revoked.discard)(device)

    def absent(self, present: Set[str], *, settled: bool) -> tuple[frozenset[str], frozenset[str]]:
        """The devices that are gone for good, and published devices that are only absent from this run.

        Once the broker's retained messages are `settled`, a published device without a birth is gone, too.
        """
        absent = self.published - present
        gone = self.revoked | (absent - self.born if settled else set())
        return frozenset(gone), frozenset(absent - gone)
