"""`edge-server jobs`: what is entered, and what is refused with a remedy."""

import json
from pathlib import Path
from typing import Any

import pytest

from edge_server.cli.main import EDGE_SERVER

SETTINGS = '[[federations]]\nname = "home"\n[[federations]]\nname = "barn"\n'


@pytest.fixture(autouse=True)
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "service"
    folder.mkdir()
    (folder / "service.toml").write_text(SETTINGS)
    (tmp_path / "home.toml").write_text('recipe = "fedavg"\n[federation]\nname = "home"\n')
    monkeypatch.setenv("EDGE_SERVICE", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder


def jobs(*words: str) -> int:
    return EDGE_SERVER.run(["jobs", *words])


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    capsys.readouterr()
    assert jobs(*words, "--format", "json") == 0
    return json.loads(capsys.readouterr().out)


def test_a_job_is_added_and_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    schedule = ("--cron", "0 2 * * SUN", "--zone", "Europe/Berlin")
    condition = ("--min-eligible", "12", "--where", "site=barn", "--weight", "2")
    assert jobs("add", "nightly", "home.toml", "rounds=2", *schedule, *condition) == 0
    assert "job nightly is added: it starts first on Sun " in capsys.readouterr().out
    found = shown(capsys, "show", "nightly")
    job = found["job"]
    assert job["words"] == [str(tmp_path / "home.toml"), "rounds=2"]
    assert (job["federation"], job["folder"]) == ("home", str(tmp_path))
    assert job["schedule"] == {"kind": "cron", "expression": "0 2 * * SUN", "zone": "Europe/Berlin"}
    assert (job["min_eligible"], job["where"], job["weight"]) == (12, "site=barn", 2)
    assert (found["state"], found["eligible"], found["runs"]) == ("scheduled", 0, [])
    assert [job["job"]["name"] for job in shown(capsys, "list")] == ["nightly"]


def test_the_devices_are_those_of_the_federation_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert jobs("add", "night", "home.toml", "clients.where=gpu, site=barn") == 0
    assert shown(capsys, "show", "night")["job"]["where"] == "gpu,site=barn"


def test_options_of_the_command_stand_behind_two_dashes(capsys: pytest.CaptureFixture[str]) -> None:
    assert jobs("add", "push", "--action", "rollout", "--federation", "barn", "--", "--canary", "5%") == 0
    job = shown(capsys, "show", "push")["job"]
    assert (job["action"], job["federation"], job["words"]) == ("rollout", "barn", ["--canary", "5%"])
    assert jobs("add", "night", "home.toml", "--", "--log-level", "info") == 0


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (("night", "home.toml", "--cron", "0 0 31 2 *"), "'0 0 31 2 *' never comes: "),
        (("night", "home.toml", "--cron", "0 0 * *"), "it needs five fields: minute, hour"),
        (("night", "home.toml", "--every", "1s"), "write a distance from 1min to 366d"),
        (("night", "home.toml", "--every", "1h", "--at", "2030-01-01"), "not allowed with argument"),
        (("night", "home.toml", "--at", "2020-01-01"), "has passed: name a later one"),
        (("night", "home.toml", "--zone", "Mars"), "there is no time zone 'Mars'"),
        (("night", "home.toml", "--where", "site=="), "write site=barn"),
        (("night", "nowhere.toml"), "there is no such file or recipe"),
        (("night", "home.toml", "federation.name=shop"), "has no federation 'shop' (known: home, barn)"),
        (("night", "home.toml", "rounds=-1"), "home.toml: [federation] rounds: "),
        (("night",), "name a federation file or a recipe"),
        (("a job", "home.toml"), "a job's name is 1 to 40 letters"),
        (("night", "home.toml", "--", "--nonsense"), "run: there is no --nonsense"),
        (("night", "home.toml", "--", "--out", "x"), "--out is set by the service"),
        (("night", "home.toml", "--", "--new"), "--new is set by the service"),
        (("night", "v1", "--action", "reboot", "--federation", "home"), "there is no action 'reboot'"),
        (("night", "--action", "rollout"), "name one of the federations with --federation"),
        (("night", "v1", "--action", "rollout", "--federation", "home", "--", "--canary", "x"), "--canary"),
        (("night", "home.toml", "--weight", "0"), "must be above 0, not 0"),
    ],
)
def test_what_is_refused_changes_nothing(
    words: tuple[str, ...], refusal: str, capsys: pytest.CaptureFixture[str], service: Path
) -> None:
    assert jobs("add", *words) == 2
    error = capsys.readouterr().err
    assert refusal in error
    assert error.count("\n") == 1
    assert not (service / "audit.jsonl").exists()
    assert shown(capsys, "list") == []


def test_a_job_is_paused_started_stopped_and_removed(capsys: pytest.CaptureFixture[str]) -> None:
    assert jobs("add", "often", "home.toml", "--every", "6h") == 0
    for verb, state in (("pause", "paused"), ("start", "scheduled"), ("stop", "stopped")):
        assert jobs(verb, "often") == 0
        assert shown(capsys, "show", "often")["state"] == state
    assert jobs("logs", "often") == 2
    assert "has not run yet" in capsys.readouterr().err
    assert jobs("remove", "often") == 0
    assert jobs("stop", "often") == 2
    assert "there is no job 'often'" in capsys.readouterr().err


def test_the_table_says_that_no_service_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert jobs("add", "try", "home.toml") == 0
    assert jobs("list") == 0
    assert jobs("show", "try") == 0
    assert capsys.readouterr().out.count("no service runs in this folder: edge-server serve") == 2


def test_a_folder_that_is_missing_or_of_a_run_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("EDGE_SERVICE", "/nowhere")
    assert jobs("list") == 2
    assert "/nowhere: there is no service folder" in capsys.readouterr().err
    run = tmp_path / "run"
    run.mkdir()
    (run / "history.jsonl").touch()
    monkeypatch.setenv("EDGE_SERVICE", str(run))
    assert jobs("list") == 2
    assert "there is no service folder" in capsys.readouterr().err
    assert [path.name for path in run.iterdir()] == ["history.jsonl"]
