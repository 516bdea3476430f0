"""Rollouts in a run's event list and on its page."""

from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from edge_server.observability.dashboard.access import access_of
from edge_server.observability.dashboard.app import make_app
from edge_server.observability.dashboard.feed import Feed
from edge_server.releases.registry.register import default_registry, enter_run
from edge_server.releases.registry.registry import Registry, Version
from edge_server.releases.rollout.journal import RolloutJournal
from edge_server.releases.rollout.open import begin_or_continue, model_rollout, offered_files
from edge_server.releases.rollout.run_events import RolloutEvents, run_of
from edge_server.releases.rollout.state import Rollout, RolloutPhase, RolloutRules
from edge_server.releases.rollout.target import Target, TargetStatus
from edge_server.storage.event_list import read_events
from tests.edge_server.observability.dashboard.test_reading_only import state_of
from tests.edge_server.releases.registry.test_registry import run_folder

LOCAL = access_of("127.0.0.1", 8265, None, bound="127.0.0.1")


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    run_folder(tmp_path / "kitchen", run="home-1")
    registry = Registry(tmp_path / "registry")
    enter_run(registry, tmp_path / "kitchen")
    return registry


def begun(registry: Registry) -> tuple[RolloutJournal, Version, Rollout]:
    journal, version = RolloutJournal(registry), registry.version("kitchen")
    fresh = model_rollout(version, RolloutRules(), offered_files(registry, version))
    return journal, version, begin_or_continue(journal, fresh)[0]


def with_targets(rollout: Rollout, **statuses: TargetStatus) -> Rollout:
    targets = {name: Target(name, 1, 0 if name == "pi" else 1, status) for name, status in statuses.items()}
    return replace(rollout, phase=RolloutPhase.RUNNING, targets=targets)


def listed_rollouts(run: Path) -> list[dict]:
    with TestClient(make_app(Feed(run, live=False), LOCAL), base_url="http://127.0.0.1:8265") as client:
        return client.get("/api/rollouts").raise_for_status().json()["rollouts"]


def test_a_rollout_is_listed_in_the_run_of_its_version(registry: Registry, tmp_path: Path) -> None:
    _, version, rollout = begun(registry)
    events = RolloutEvents(run_of(registry, version))
    events.show(rollout)
    running = with_targets(rollout, pi=TargetStatus.ASKED, nano=TargetStatus.WAITING)
    events.show(running)
    failed = with_targets(rollout, pi=TargetStatus.ROLLED_BACK, nano=TargetStatus.WAITING)
    events.show(failed)
    events.show(replace(failed, phase=RolloutPhase.STOPPED, why="1 of 1 failed"))
    events.close()
    rows = [row.event for row in read_events(tmp_path / "kitchen" / "events.sqlite")]
    assert [(row.kind, row.device, row.text) for row in rows] == [
        ("rollout", "", "rollout gathering: kitchen"),
        ("rollout", "", "rollout running: kitchen"),
        ("rollout", "", "group 1 open: of 2, 1 device: kitchen"),
        ("rollout", "pi", "rollout: rolled back: kitchen"),
        ("rollout", "", "rollout stopped: kitchen: 1 of 1 failed"),
    ]


def test_a_services_run_has_its_registry_and_its_rollouts(registry: Registry, tmp_path: Path) -> None:
    _, version, _ = begun(registry)
    (tmp_path / "runs").mkdir()
    run = (tmp_path / "kitchen").rename(tmp_path / "runs" / "kitchen")
    assert default_registry(run) == tmp_path / "runs" / "registry"
    (tmp_path / "service.toml").touch()
    assert default_registry(run) == registry.folder
    assert run_of(registry, version) == run
    assert [rollout["version"] for rollout in listed_rollouts(run)] == ["kitchen"]


def test_a_version_whose_run_folder_was_moved_is_still_rolled_out(registry: Registry, tmp_path: Path) -> None:
    _, version, rollout = begun(registry)
    (tmp_path / "kitchen").rename(tmp_path / "attic")
    assert run_of(registry, version) is None
    events = RolloutEvents(None)
    events.show(rollout)
    events.close()


def test_the_page_of_a_run_shows_the_rollouts_of_its_versions_and_changes_nothing(
    registry: Registry, tmp_path: Path
) -> None:
    assert listed_rollouts(tmp_path / "kitchen") == []
    journal, version, rollout = begun(registry)
    journal.save(rollout, with_targets(rollout, pi=TargetStatus.KEPT, nano=TargetStatus.WAITING))
    registry.set_active(version)
    before = state_of(tmp_path)
    (shown,) = listed_rollouts(tmp_path / "kitchen")
    assert state_of(tmp_path) == before
    assert (shown["version"], shown["active"], shown["phase"]) == ("kitchen", True, "running")
    assert (shown["opened"], shown["groups"], shown["ended_at"]) == (0, 2, None)
    assert shown["devices"] == {"kept": 1, "waiting": 1}


def test_a_run_does_not_list_the_rollouts_of_another_run(registry: Registry, tmp_path: Path) -> None:
    begun(registry)
    run_folder(tmp_path / "attic", run="home-2")
    assert listed_rollouts(tmp_path / "attic") == []
