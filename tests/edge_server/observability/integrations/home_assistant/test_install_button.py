"""The Install button reports why it cannot install now, and keeps working."""

import queue
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edge_client.transport.broker_link import parse_address
from edge_server.observability.integrations.home_assistant.model_versions import (
    ModelVersions,
    read_model_versions,
)
from edge_server.observability.integrations.home_assistant.service import (
    Installer,
    outcome_of,
    progress_of,
    rules_for,
)
from edge_server.observability.integrations.home_assistant.states import Installation
from edge_server.releases.registry.registry import Registry
from edge_server.releases.rollout.groups import MODELS
from edge_server.releases.rollout.journal import RolloutJournal
from edge_server.releases.rollout.machine import step
from edge_server.releases.rollout.open import begin_or_continue, model_rollout, offered_files
from edge_server.releases.rollout.state import Connected, MessageReceived, Rollout, RolloutPhase, RolloutRules
from edge_server.releases.rollout.target import TargetStatus
from schemas.messages import ModelReport
from schemas.messages.rollout import Cause, Stage
from schemas.tensors.chunks import CHUNK_BYTES
from tests.edge_server.releases.rollout.fleet import DONE, FILES, birth
from tests.edge_server.releases.rollout.sample_versions import entered, fitted, key_in

DEADLINE_S = 30.0


class InstallerHarness:
    """An installer and its reports."""

    def __init__(self, folder: Path) -> None:
        self.registry = Registry(folder / "registry")
        self.reports: queue.SimpleQueue[Installation] = queue.SimpleQueue()
        address = parse_address("mqtt://127.0.0.1:1")
        self.installer = Installer(self.registry, "home", address, 0.0, self.reports.put)

    def next_report(self) -> Installation:
        return self.reports.get(timeout=DEADLINE_S)

    def press(self, device: str = "pi-1") -> Installation:
        """Press the button and return the report that follows the first 0 percent."""
        assert self.installer.begin(device)
        assert self.next_report() == Installation(device, 0)
        return self.next_report()


@pytest.fixture
def harness(tmp_path: Path) -> InstallerHarness:
    return InstallerHarness(tmp_path)


def test_a_missing_registry_is_reported(harness) -> None:
    answer = harness.press()
    assert (answer.percent, answer.text.split(":")[0][:20]) == (None, "there is no registry")


def test_a_missing_approved_version_is_reported(harness, tmp_path) -> None:
    entered(harness.registry, "v1", fitted(), key_in(tmp_path))
    answer = harness.press()
    assert answer.percent is None
    assert "none is active yet" in answer.text


def test_an_unfinished_rollout_to_all_devices_is_reported(harness, tmp_path) -> None:
    version = entered(harness.registry, "v1", fitted(), key_in(tmp_path))
    harness.registry.set_active(version)
    begun = model_rollout(version, RolloutRules(), offered_files(harness.registry, version))
    begin_or_continue(RolloutJournal(harness.registry), begun)
    assert harness.press() == Installation(
        "pi-1", None, "a rollout of v1 is not finished: `edge-server rollout v1`"
    )


def test_devices_install_one_at_a_time(harness, monkeypatch) -> None:
    continue_install = threading.Event()

    def slow(self: Any, device: str) -> Rollout:
        continue_install.wait(DEADLINE_S)
        return Rollout(
            "r", "v1", "home", RolloutRules(), FILES, MODELS, phase=RolloutPhase.STOPPED, why="enough"
        )

    monkeypatch.setattr(Installer, "roll_out", slow)
    assert harness.installer.begin("pi-1")
    assert harness.next_report().percent == 0
    assert not harness.installer.begin("pi-2")
    assert harness.next_report().text == "pi-1 is still installing: press Install again when it has finished."
    assert not harness.installer.begin("pi-1")
    continue_install.set()
    assert harness.next_report() == Installation("pi-1", None, "v1: enough.")


def test_a_failure_is_reported_and_the_next_press_works(harness, monkeypatch) -> None:
    def broken(self: Any, device: str) -> Rollout:
        raise OSError("no space left")

    monkeypatch.setattr(Installer, "roll_out", broken)
    assert harness.press().text == "OSError: no space left"
    harness.installer.thread.join(DEADLINE_S)
    assert harness.press("pi-2").text == "OSError: no space left"


def rollout_at(stage: Stage | None, **more: Any) -> Rollout:
    """The rollout to pi-1 after pi-1 has reported this stage."""
    rollout = Rollout("r-1", "v2", "home", rules_for("pi-1", 5.0), FILES, MODELS)
    rollout, _ = step(rollout, Connected(CHUNK_BYTES), 0.0)
    rollout, _ = step(rollout, MessageReceived(birth("pi-1")), 0.0)
    if stage is not None:
        words = {"federation": "home", "device": "pi-1", "rollout": "r-1", "version": "v2", "stage": stage}
        rollout, _ = step(rollout, MessageReceived(ModelReport(**{**words, **more})), 1.0)
    return rollout


@pytest.mark.parametrize(
    ("stage", "percent"),
    [(None, 5), (Stage.OFFERED, 10), (Stage.FETCHED, 40), (Stage.COMPARED, 60), (Stage.SWITCHED, 70)],
)
def test_the_progress_follows_the_stage(stage, percent) -> None:
    assert progress_of("pi-1", rollout_at(stage)).percent == percent


def test_the_outcome_is_that_reported_by_the_device() -> None:
    kept = rollout_at(Stage.KEPT, candidate=DONE, running=DONE)
    assert kept.phase is RolloutPhase.FINISHED
    assert outcome_of("pi-1", kept) == Installation("pi-1", None, "v2: pi-1 keeps it.")
    refused = rollout_at(Stage.REFUSED, cause=Cause.ACCURACY, detail="worse on 9 of 100")
    assert refused.phase is RolloutPhase.STOPPED
    assert outcome_of("pi-1", refused).text == "v2: pi-1 refuses it (accuracy): worse on 9 of 100."


def test_the_rollout_is_withdrawn_from_a_device_lost_before_its_switch(harness) -> None:
    given_up = []

    class Service:
        def withdraw(self, why: str) -> None:
            given_up.append(why)

    harness.installer.busy_with, harness.installer.service = "pi-1", Service()
    rollout = rollout_at(Stage.OFFERED)
    harness.installer.show_progress(rollout, "")
    assert given_up == []
    away = replace(rollout.targets["pi-1"], status=TargetStatus.AWAY)
    harness.installer.show_progress(rollout.with_target(away), "")
    assert given_up == ["pi-1 is not connected"]


def test_the_registry_knows_the_version_each_device_kept_last(harness, tmp_path) -> None:
    assert read_model_versions(harness.registry.folder, "home") == ModelVersions()
    version = entered(harness.registry, "v1", fitted(), key_in(tmp_path))
    assert read_model_versions(harness.registry.folder, "home") == ModelVersions()
    harness.registry.set_active(version)
    journal = RolloutJournal(harness.registry)
    kept = rollout_at(Stage.KEPT, candidate=DONE)
    journal.begin(kept)
    assert read_model_versions(harness.registry.folder, "home") == ModelVersions("v1", {"pi-1": "v2"})
    assert read_model_versions(harness.registry.folder, "work") == ModelVersions()
