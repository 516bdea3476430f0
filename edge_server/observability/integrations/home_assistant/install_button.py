"""The Install button: a rollout of the approved version to one device."""

import logging
import threading
import time
from collections.abc import Callable

from edge_client.transport.broker_link import BrokerAddress
from edge_server.observability.integrations.home_assistant.states import Installation
from edge_server.releases.registry.registry import Registry
from edge_server.releases.rollout.journal import RolloutJournal
from edge_server.releases.rollout.open import begin_for_devices, offered_files, rollout_lock, wanted_version
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
        version = wanted_version(registry, None, self._federation)
        files = offered_files(registry, version)
        paths = {file.ref.digest: registry.onnx(version.version, tier) for tier, file in files.items()}
        with rollout_lock(registry, self._federation):
            journal = RolloutJournal(registry)
            rollout = begin_for_devices(journal, version, rules_for(device, self._watch_s), files)
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
