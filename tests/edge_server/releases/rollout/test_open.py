"""Rollouts that `edge-server rollout` begins, resumes and refuses, and their journal."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from edge_server.cli.main import EDGE_SERVER
from edge_server.releases.registry.registry import Registry
from edge_server.releases.rollout.groups import MODELS
from edge_server.releases.rollout.journal import RolloutJournal, new_id
from edge_server.releases.rollout.machine import step, stop_rollout
from edge_server.releases.rollout.open import (
    begin_or_continue,
    model_rollout,
    offered_files,
    reopen,
    rollout_lock,
    wanted_version,
)
from edge_server.releases.rollout.progress import Progress, summary
from edge_server.releases.rollout.state import RolloutPhase, RolloutRules, Withdrawn
from edge_server.releases.rollout.target import TargetStatus
from schemas.base import is_name
from schemas.errors import ConfigError
from schemas.messages.rollout import Cause, Stage
from tests.edge_server.releases.rollout.fleet import FILES, RULES, World
from tests.edge_server.releases.rollout.sample_versions import entered, fitted, key_in


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    registry = Registry(tmp_path / "registry")
    registry.folder.mkdir()
    signer = key_in(tmp_path)
    for number, name in enumerate(("v1", "v2"), start=1):
        entered(registry, name, fitted() * number, signer)
    return registry


@pytest.fixture
def journal(registry: Registry) -> RolloutJournal:
    return RolloutJournal(registry)


def test_an_interrupted_rollout_resumes_with_its_own_rules(registry, journal) -> None:
    version = registry.version("v1")
    files = offered_files(registry, version)
    first, first_resumed = begin_or_continue(journal, model_rollout(version, RULES, files))
    again, resumed = begin_or_continue(journal, model_rollout(version, RolloutRules(canary="50%"), files))
    assert (first_resumed, resumed) == (False, True)
    assert (again.id, again.rules) == (first.id, RULES)


def test_a_rollout_uses_the_device_tiers_of_the_versions_run(registry, journal) -> None:
    version = registry.version("v1").model_copy(update={"device_tiers": {"pi": 2}})
    files = offered_files(registry, version)
    for _ in ("a new rollout", "the same rollout, resumed"):
        assert begin_or_continue(journal, model_rollout(version, RULES, files))[0].device_tiers == {"pi": 2}


def test_a_rollout_of_another_version_requires_the_first_to_be_finished(registry, journal) -> None:
    first, second = registry.version("v1"), registry.version("v2")
    rollout, _ = begin_or_continue(journal, model_rollout(first, RULES, offered_files(registry, first)))
    with pytest.raises(ConfigError, match=r"a rollout of v1 is not finished: continue it .* or withdraw it"):
        begin_or_continue(journal, model_rollout(second, RULES, offered_files(registry, second)))
    journal.save(rollout, replace(rollout, phase=RolloutPhase.STOPPED))
    _, resumed = begin_or_continue(journal, model_rollout(second, RULES, offered_files(registry, second)))
    assert resumed is False


def test_the_journal_restores_the_state_of_a_rollout(registry, journal) -> None:
    world = World().begin("a", "b", "c")
    journal.begin(world.rollout)
    before = world.rollout
    (canary,) = world.group(0)
    world.say(canary, Stage.KEPT)
    (second,) = world.group(1)
    world.say(second, Stage.SWITCHED, Cause.ERRORS)
    journal.save(before, world.rollout)
    loaded = journal.load_rollout("r-1", FILES, now=5.0, offering=MODELS)
    assert (loaded.phase, loaded.opened, loaded.rules) == (RolloutPhase.RUNNING, 1, RULES)
    assert {name: target.status for name, target in loaded.targets.items()} == {
        name: target.status for name, target in world.rollout.targets.items()
    }
    assert loaded.targets[canary].report == world.rollout.targets[canary].report
    assert loaded.targets[second].status is TargetStatus.WATCHING


def test_nothing_is_written_without_a_change(registry, journal, monkeypatch) -> None:
    world = World().begin("a", "b")
    journal.begin(world.rollout)
    monkeypatch.setattr(Registry, "database", lambda _: pytest.fail("nothing should be written"))
    before = world.rollout
    world.wait(60)
    assert before != world.rollout
    journal.save(before, world.rollout)


def test_a_version_is_withdrawn_from_the_devices_that_have_it(registry, journal) -> None:
    version = registry.version("v1")
    world = World().begin("a")
    world.rollout = replace(world.rollout, version="v1")
    journal.begin(world.rollout)
    before = world.rollout
    world.say("a", Stage.KEPT)
    journal.save(before, world.rollout)
    assert world.rollout.phase is RolloutPhase.FINISHED
    opened = reopen(journal, model_rollout(version, RULES, FILES))
    stopping = stop_rollout(opened, "withdrawn by hand", 0.0)
    assert (stopping.phase, stopping.left_with_it) == (RolloutPhase.STOPPING, ("a",))


def test_only_the_last_rolled_out_version_can_be_withdrawn(registry, journal) -> None:
    first, second = registry.version("v1"), registry.version("v2")
    with pytest.raises(ConfigError, match="v1 was never rolled out"):
        reopen(journal, model_rollout(first, RULES, {}))
    for version in (first, second):
        fresh = model_rollout(version, RULES, offered_files(registry, version))
        rollout, _ = begin_or_continue(journal, fresh)
        journal.save(rollout, replace(rollout, phase=RolloutPhase.FINISHED))
    with pytest.raises(ConfigError, match="v2 was rolled out after v1"):
        reopen(journal, model_rollout(first, RULES, {}))
    # No device serves the version of a stopped rollout.
    last = journal.load_rollout(journal.newest("home")[0].id, {}, now=0.0, offering=MODELS)
    journal.save(last, replace(last, phase=RolloutPhase.STOPPED))
    assert reopen(journal, model_rollout(first, RULES, {})).version == "v1"


def test_without_a_version_the_active_one_is_rolled_out(registry) -> None:
    with pytest.raises(ConfigError, match="name a version: none is active yet"):
        wanted_version(registry, None, None)
    registry.set_active(registry.version("v2"))
    assert wanted_version(registry, None, None).version == "v2"
    registry.set_active(entered(registry, "w1", fitted(), None, federation="work"))
    with pytest.raises(ConfigError, match="one of the federations with --federation: home, work"):
        wanted_version(registry, None, None)
    assert wanted_version(registry, None, "work").version == "w1"


def test_an_unsigned_version_is_not_rolled_out(registry) -> None:
    with pytest.raises(ConfigError, match="bare is not signed"):
        offered_files(registry, entered(registry, "bare", fitted(), None))


def test_a_file_altered_in_the_registry_is_not_rolled_out(registry) -> None:
    path = registry.onnx("v1", 1)
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(ConfigError, match="is not the file that was entered"):
        offered_files(registry, registry.version("v1"))
    path.unlink()
    with pytest.raises(ConfigError, match="No such file or directory: enter the run again"):
        offered_files(registry, registry.version("v1"))


def test_a_federation_has_only_one_rollout_at_a_time(registry) -> None:
    with rollout_lock(registry, "home"):
        with (
            pytest.raises(ConfigError, match="in progress in another process"),
            rollout_lock(registry, "home"),
        ):
            pass
        with rollout_lock(registry, "work"):
            pass


def test_the_id_of_a_rollout_is_a_valid_and_unique_name(registry) -> None:
    assert is_name(new_id("x" * 64))
    assert new_id("v1") != new_id("v1")


# --- output for people and programs ---
def lines_of(world: World, capsys: pytest.CaptureFixture[str], *, as_json: bool = False) -> list[str]:
    import sys

    progress = Progress(sys.stdout, as_json=as_json)
    for canary in world.group(0):
        progress.show(world.rollout, "")
        world.say(canary, Stage.SWITCHED)
        progress.show(world.rollout, "")
        world.say(canary, Stage.ROLLED_BACK, Cause.ERRORS, detail="20 of 40 requests failed")
        progress.show(world.rollout, "")
    return capsys.readouterr().out.splitlines()


def test_progress_reports_each_event_once(capsys) -> None:
    lines = [line.split(maxsplit=1)[1] for line in lines_of(World().begin("a", "b"), capsys)]
    assert len(lines) == len(set(lines))
    assert "devices watch the new model for 30 s before they keep it (--watch)" in lines
    assert lines[-1] == "stopped: canary: 1 of 1 failed, more than 0.05 of the group"
    assert "has gone back (errors): 20 of 40 requests failed" in lines[-2]
    assert "has switched: 90.00% -> 90.00% of 100 examples, 1 ms, before 1 ms" in lines[-3]


def test_a_device_that_was_waited_for_is_said_to_be_back(capsys) -> None:
    import sys

    world = World(now=0.0).begin("a")
    progress, there = Progress(sys.stdout), world.rollout
    world.lost("a")
    for rollout in (there, world.rollout, there):
        progress.show(rollout, "")
    assert [line.split(maxsplit=1)[1] for line in capsys.readouterr().out.splitlines()[-2:]] == [
        "waiting for a: offline",
        "a: online again",
    ]


def test_json_progress_is_one_document_per_line(capsys) -> None:
    world = World().begin("a", "b")
    values = [json.loads(line) for line in lines_of(world, capsys, as_json=True)]
    reported = [value for value in values if value["about"] == "device"]
    assert [value["status"] for value in reported] == ["watching", "rolled back"]
    assert reported[-1]["report"]["cause"] == "errors"
    ended = summary(world.rollout)
    assert (ended["outcome"], [group["opened"] for group in ended["groups"]]) == ("stopped", [True, False])


def test_a_withdrawal_by_hand_is_shown(capsys) -> None:
    import sys

    world = World().begin("a")
    progress = Progress(sys.stdout)
    progress.show(world.rollout, "")
    world.rollout, _ = step(world.rollout, Withdrawn("withdrawn by hand"), world.now)
    progress.show(world.rollout, "")
    assert "stopping: withdrawn by hand" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("v3", "there is no version 'v3'"),
        ("v1 --canary 0", "'0' is neither a number of devices nor a share such as 10%"),
        ("v1 --success 1.5", "must be between 0 and 1, not 1.5"),
        ("v1 --latency-ratio 0.5", "must be between 1 and 1000, not 0.5"),
        ("v1 --withdraw", "v1 was never rolled out"),
        ("", "name a version: none is active yet"),
    ],
)
def test_invalid_arguments_are_usage_errors(registry, capsys, words: str, message: str) -> None:
    line = ["rollout", *words.split(), "--registry", str(registry.folder)]
    assert EDGE_SERVER.run(line) == 2
    assert message in capsys.readouterr().err


def test_the_models_command(registry, capsys) -> None:
    def run(*words: str) -> str:
        assert EDGE_SERVER.run(["models", *words, "--registry", str(registry.folder)]) == 0
        return capsys.readouterr().out

    assert [line.split()[0] for line in run("list").splitlines()] == ["version", "v2", "v1"]
    assert "active is v1" in run("set-active", "v1")
    listed = json.loads(run("list", "--format", "json"))
    assert [(version["version"], version["active"]) for version in listed] == [("v2", False), ("v1", True)]
    assert run("show", "v1") == "# v1\n"
    assert json.loads(run("show", "v1", "--format", "json"))["folder"] == str(registry.version_path("v1"))
    assert "tier 1: sha256" in run("diff", "v1", "v2")
    assert json.loads(run("diff", "v1", "v2", "--format", "json"))["weights_apart"] is None
    assert EDGE_SERVER.run(["models", "list", "--registry", str(registry.folder / "none")]) == 2
    assert "there is no registry in" in capsys.readouterr().err
