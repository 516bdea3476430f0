"""A rollout to named devices: other devices get no offer, are not counted and are not waited for."""

from dataclasses import replace
from pathlib import Path

import pytest

from edge_server.cli.main import main
from edge_server.releases.registry.registry import Registry
from edge_server.releases.rollout import open as opening
from edge_server.releases.rollout.journal import RolloutJournal
from edge_server.releases.rollout.service import RolloutService
from edge_server.releases.rollout.state import MessageReceived, RolloutPhase
from edge_server.releases.rollout.target import TargetStatus
from edge_server.storage.inventory.inventory import Inventory
from edge_server.storage.service_folder import ServiceFolder
from schemas.errors import ConfigError
from schemas.messages.rollout import Stage
from schemas.selectors import parse_where
from tests.edge_server.releases.rollout.fleet import RULES, World, birth
from tests.edge_server.releases.rollout.sample_versions import entered, fitted, key_in

ONLY = RULES.model_copy(update={"only": ("pi-2",), "canary": "100%", "groups": 1, "success": 1.0})


def test_only_the_named_device_is_offered_the_model_and_finishes_the_rollout() -> None:
    world = World(ONLY).begin("pi-1", "pi-2", "pi-3")
    assert world.offered() == {"pi-2"}
    world.say("pi-2", Stage.KEPT)
    assert world.rollout.phase is RolloutPhase.FINISHED
    assert set(world.rollout.targets) == {"pi-2"}


def test_a_device_that_appears_later_does_not_join() -> None:
    world = World(ONLY).begin("pi-2")
    world.do(MessageReceived(birth("pi-9")))
    world.wait(10)
    assert set(world.rollout.targets) == {"pi-2"}


def test_the_rollout_waits_for_the_named_device() -> None:
    world = World(ONLY).begin("pi-1", "pi-3")
    assert world.rollout.phase is RolloutPhase.GATHERING


def test_a_refusal_stops_the_rollout() -> None:
    world = World(ONLY).begin("pi-1", "pi-2")
    world.say("pi-2", Stage.REFUSED)
    assert (world.status("pi-2"), world.rollout.phase) == (TargetStatus.REFUSED, RolloutPhase.STOPPED)


@pytest.fixture
def registered(tmp_path: Path):
    """A journal, one signed version and its files."""
    registry = Registry(tmp_path / "registry")
    version = entered(registry, "v1", fitted(), key_in(tmp_path))
    return RolloutJournal(registry), version, opening.offered_files(registry, version)


def test_an_interrupted_rollout_resumes_only_with_the_same_device(registered) -> None:
    journal, version, files = registered
    first = opening.begin_for_devices(journal, opening.model_rollout(version, ONLY, files))
    again = opening.begin_for_devices(journal, opening.model_rollout(version, ONLY, files))
    assert (again.id, again.rules.only) == (first.id, ("pi-2",))
    other = opening.model_rollout(version, ONLY.model_copy(update={"only": ("pi-1",)}), files)
    with pytest.raises(ConfigError, match="a rollout of v1 is not finished"):
        opening.begin_for_devices(journal, other)


def test_a_rollout_to_one_device_does_not_take_over_a_rollout_to_all(registered) -> None:
    journal, version, files = registered
    opening.begin_or_continue(journal, opening.model_rollout(version, RULES, files))
    with pytest.raises(ConfigError, match="a rollout of v1 is not finished"):
        opening.begin_for_devices(journal, opening.model_rollout(version, ONLY, files))


def test_the_command_accepts_devices_and_does_not_change_the_active_version(
    tmp_path, monkeypatch, capsys
) -> None:
    registry = Registry(tmp_path / "registry")
    entered(registry, "v1", fitted(), key_in(tmp_path))
    seen = []

    def run(service: RolloutService):
        seen.append(service.rollout.rules.only)
        return replace(service.rollout, phase=RolloutPhase.FINISHED)

    monkeypatch.setattr(RolloutService, "run", run)
    words = ["rollout", "v1", "--registry", str(registry.folder), "--only", "pi-1", "--only", "pi-2"]
    assert main(words) == 0
    assert seen == [("pi-1", "pi-2")]
    assert registry.actives() == {}
    assert main(["rollout", "v1", "--registry", str(registry.folder), "--only", "a/b"]) == 2
    assert "1 to 64 letters" in capsys.readouterr().err


def labelled(device: str, **labels: str):
    return birth(device).model_copy(update={"labels": labels})


def test_a_rollout_by_label_is_for_matching_devices_and_the_operators_labels_win(tmp_path) -> None:
    folder = ServiceFolder(tmp_path / "service")
    inventory = Inventory(folder.inventory)
    inventory.add("home", "pi-3", own_labels={"site": "barn"})
    inventory.close()
    world = World(ONLY.model_copy(update={"only": (), "where": "site=barn"}))
    world.rollout = opening.with_labels(world.rollout, folder)
    world.begin()
    for message in (labelled("pi-1", site="field"), labelled("pi-2", site="barn"), labelled("pi-3")):
        world.do(MessageReceived(message))
    world.wait(10)
    assert set(world.rollout.targets) == {"pi-2", "pi-3"}
    world.do(MessageReceived(labelled("pi-4", site="barn")))
    world.do(MessageReceived(labelled("pi-5", site="field")))
    assert set(world.rollout.targets) == {"pi-2", "pi-3", "pi-4"}


def test_the_command_accepts_a_selector_and_does_not_change_the_active_version(tmp_path, monkeypatch) -> None:
    registry = Registry(tmp_path / "registry")
    entered(registry, "v1", fitted(), key_in(tmp_path))
    seen = []

    def run(service: RolloutService):
        seen.append(service.rollout.fleet.membership.where)
        return replace(service.rollout, phase=RolloutPhase.FINISHED)

    monkeypatch.setattr(RolloutService, "run", run)
    words = ["rollout", "v1", "--registry", str(registry.folder), "--service", str(tmp_path / "none")]
    assert main([*words, "--where", "site=barn"]) == 0
    assert (seen, registry.actives()) == ([parse_where("site=barn")], {})
    assert main([*words, "--where", "site=="]) == 2
