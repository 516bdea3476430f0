"""The Install button where there is nothing to install, or no time for it: it says so, and goes on."""

import queue
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edge_client.transport.broker_address import parse_address
from edge_server.integrations.home_assistant.install_button import (
    Installer,
    outcome_of,
    progress_of,
    rules_for,
)
from edge_server.integrations.home_assistant.model_versions import ModelVersions, read_model_versions
from edge_server.integrations.home_assistant.states import Installation
from edge_server.releases.registry.registry import Registry
from edge_server.releases.rollout.events import Connected, MessageReceived
from edge_server.releases.rollout.journal import RolloutJournal
from edge_server.releases.rollout.machine import step
from edge_server.releases.rollout.open import begin_or_resume, offered_files
from edge_server.releases.rollout.rules import RolloutRules
from edge_server.releases.rollout.state import Rollout, RolloutPhase
from edge_server.releases.rollout.target import TargetStatus
from schemas.messages import ModelReport
from schemas.messages.rollout_terms import Cause, Stage
from schemas.tensors.chunks import CHUNK_BYTES
from tests.edge_server.releases.rollout.fleet import DONE, FILES, birth
from tests.edge_server.releases.rollout.sample_versions import entered, fitted, key_in

DEADLINE_S = 30.0


class Room:
    """An installer, and what it says."""

    def __init__(self, folder: Path) -> None:
        self.registry = Registry(folder / "registry")
        self.text: queue.SimpleQueue[Installation] = queue.SimpleQueue()
        address = parse_address("mqtt://127.0.0.1:1")
        self.installer = Installer(self.registry, "home", address, 0.0, self.text.put)

    def hears(self) -> Installation:
        return self.text.get(timeout=DEADLINE_S)

    def press(self, device: str = "pi-1") -> Installation:
        """Press, and wait for the answer after the first 0 percent."""
        assert self.installer.begin(device)
        assert self.hears() == Installation(device, 0)
        return self.hears()


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


def test_without_a_registry_it_says_so(room) -> None:
    answer = room.press()
    assert (answer.percent, answer.text.split(":")[0][:20]) == (None, "there is no registry")


def test_without_an_approved_version_it_says_so(room, tmp_path) -> None:
    entered(room.registry, "v1", fitted(), key_in(tmp_path))
    answer = room.press()
    assert answer.percent is None
    assert "none is active yet" in answer.text


def test_while_a_rollout_to_all_is_under_way_it_says_so(room, tmp_path) -> None:
    version = entered(room.registry, "v1", fitted(), key_in(tmp_path))
    room.registry.set_active(version)
    begin_or_resume(
        RolloutJournal(room.registry), version, RolloutRules(), offered_files(room.registry, version)
    )
    assert room.press() == Installation(
        "pi-1", None, "a rollout of v1 is not finished: `edge-server rollout v1`"
    )


def test_one_device_after_the_other(room, monkeypatch) -> None:
    go_on = threading.Event()

    def slow(self: Any, device: str) -> Rollout:
        go_on.wait(DEADLINE_S)
        return Rollout("r", "v1", "home", RolloutRules(), FILES, phase=RolloutPhase.STOPPED, why="enough")

    monkeypatch.setattr(Installer, "_rolled_out", slow)
    assert room.installer.begin("pi-1")
    assert room.hears().percent == 0
    assert not room.installer.begin("pi-2")
    assert room.hears().text == "pi-1 is still installing: press Install again when it has finished."
    assert not room.installer.begin("pi-1")
    go_on.set()
    assert room.hears() == Installation("pi-1", None, "v1: enough.")


def test_what_breaks_is_said_and_the_next_press_works(room, monkeypatch) -> None:
    def broken(self: Any, device: str) -> Rollout:
        raise OSError("no space left")

    monkeypatch.setattr(Installer, "_rolled_out", broken)
    assert room.press().text == "OSError: no space left"
    room.installer._thread.join(DEADLINE_S)
    assert room.press("pi-2").text == "OSError: no space left"


def rollout_at(stage: Stage | None, **more: Any) -> Rollout:
    """The rollout to pi-1 after it has said this."""
    rollout = Rollout("r-1", "v2", "home", rules_for("pi-1", 5.0), FILES)
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
def test_how_far_it_is_goes_by_stage(stage, percent) -> None:
    assert progress_of("pi-1", rollout_at(stage)).percent == percent


def test_how_it_ended_is_what_the_device_said() -> None:
    kept = rollout_at(Stage.KEPT, candidate=DONE, running=DONE)
    assert kept.phase is RolloutPhase.FINISHED
    assert outcome_of("pi-1", kept) == Installation("pi-1", None, "v2: pi-1 keeps it.")
    refused = rollout_at(Stage.REFUSED, cause=Cause.ACCURACY, detail="worse on 9 of 100")
    assert refused.phase is RolloutPhase.STOPPED
    assert outcome_of("pi-1", refused).text == "v2: pi-1 refuses it (accuracy): worse on 9 of 100."


def test_a_device_that_is_lost_before_it_switched_is_given_up(room) -> None:
    given_up = []

    class Service:
        def withdraw(self, why: str) -> None:
            given_up.append(why)

    room.installer._busy_with, room.installer._service = "pi-1", Service()
    rollout = rollout_at(Stage.OFFERED)
    room.installer._shown(rollout, "")
    assert given_up == []
    away = replace(rollout.targets["pi-1"], status=TargetStatus.AWAY)
    room.installer._shown(rollout.put(away), "")
    assert given_up == ["pi-1 is not connected"]


def test_the_shelf_knows_what_each_device_kept_last(room, tmp_path) -> None:
    assert read_model_versions(room.registry.folder, "home") == ModelVersions()
    version = entered(room.registry, "v1", fitted(), key_in(tmp_path))
    assert read_model_versions(room.registry.folder, "home") == ModelVersions()
    room.registry.set_active(version)
    journal = RolloutJournal(room.registry)
    kept = rollout_at(Stage.KEPT, candidate=DONE)
    journal.begin(kept)
    assert read_model_versions(room.registry.folder, "home") == ModelVersions("v1", {"pi-1": "v2"})
    assert read_model_versions(room.registry.folder, "work") == ModelVersions()
