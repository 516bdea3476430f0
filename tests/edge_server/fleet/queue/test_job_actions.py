"""The command lines of jobs."""

from pathlib import Path

import pytest

from edge_server.config.load import load_config
from edge_server.fleet.queue.job_actions import ACTIONS, command_of
from edge_server.fleet.settings.service import ServedFederation
from edge_server.storage.service_folder import ServiceFolder
from tests.edge_server.fleet.queue.jobs import job

PLAIN = ServedFederation(name="home", broker="mqtt://farm.lan:1883")
SECURE = ServedFederation(name="home", broker="mqtts://farm.lan:8883", authority=Path("/authority"))
FOLDER = ServiceFolder(Path("/service"))
RUN = FOLDER.runs / "night-20261129-010000"


def test_a_federation_file_is_run_in_its_folder() -> None:
    night = job("night", words=("/srv/home.toml", "rounds=3", "--metrics", "127.0.0.1:9464"))
    words = (
        "run --broker mqtt://farm.lan:1883 /srv/home.toml rounds=3 --out /service/runs/night-20261129-010000"
    )
    rest = "--registry /service/registry --service /service --metrics 127.0.0.1:9464"
    assert command_of(night, RUN, FOLDER, PLAIN, program=()) == f"{words} {rest}".split()


def test_a_run_that_has_begun_goes_on_by_its_own_file(tmp_path: Path) -> None:
    (tmp_path / "federation.toml").touch()
    night = job("night", words=("/srv/home.toml", "rounds=3", "--metrics"))
    words = command_of(night, tmp_path, FOLDER, PLAIN, program=())
    assert words[3:] == [
        str(tmp_path / "federation.toml"),
        *("--out", str(tmp_path), "--registry", "/service/registry", "--service", "/service", "--metrics"),
    ]


@pytest.mark.parametrize(
    ("action", "identity"), [("run", "server"), ("rollout", "rollout"), ("client-rollout", "updates")]
)
def test_each_action_has_a_certificate_of_its_own(action: str, identity: str) -> None:
    words = command_of(job("a", action=action), RUN, FOLDER, SECURE, program=("edge-server",))
    folder = f"/authority/{identity}"
    verb = ACTIONS[action].verb
    assert words[: 1 + len(verb)] == ["edge-server", *verb]
    at = words.index("--ca")
    assert words[at : at + 6] == [
        *("--ca", f"{folder}/ca.pem", "--cert", f"{folder}/{identity}.pem"),
        *("--key", f"{folder}/{identity}.key"),
    ]


def test_a_rollout_names_its_federation() -> None:
    push = job("push", action="rollout", words=("v1", "--canary", "10%"))
    words = "v1 --registry /service/registry --federation home --service /service --canary 10%"
    assert command_of(push, RUN, FOLDER, PLAIN, program=())[3:] == words.split()


def test_a_release_of_the_client_is_rolled_out_to_the_devices_of_the_job() -> None:
    push = job("push", action="client-rollout", words=("0.2.0", "--canary", "1"), where="site=barn")
    words = command_of(push, RUN, FOLDER, PLAIN, program=())
    expected = (
        "client-release rollout --broker mqtt://farm.lan:1883 0.2.0 --where site=barn --service /service"
    )
    assert words == [*expected.split(), "--canary", "1"]


def test_only_the_devices_of_the_job_take_part() -> None:
    where = "site in (barn,field)"
    run = command_of(job("night", where=where), RUN, FOLDER, PLAIN, program=())
    assert run[3:5] == ["night.toml", f"clients.where={where}"]
    assert load_config("fedavg", run[4:5]).clients.where == where
    push = command_of(job("push", action="rollout", where=where), RUN, FOLDER, PLAIN, program=())
    assert push[push.index("--where") + 1] == where


def test_an_attempt_that_failed_is_over_when_the_run_has_a_summary(tmp_path: Path) -> None:
    assert not ACTIONS["run"].is_over(tmp_path)
    (tmp_path / "summary.json").touch()
    assert ACTIONS["run"].is_over(tmp_path)
