"""A finished run: one name everywhere, no files of a database writer, a message when it is started again."""

import json
from pathlib import Path

import pytest

from edge_client.transport.broker_link import parse_address
from edge_server.cli.main import main
from edge_server.coordinator.launch import serve
from edge_server.releases.registry.registry import Registry
from edge_server.transport.broker.launch import running_broker
from tests.integration.conftest import Watched, demo_config
from tests.integration.device_threads import devices
from tests.slow import slow

WORDS = ("data.source=digits", "model.name=mlp", "num-clients=2", "rounds=1", "test-samples=20", "workers=1")


def writer_files(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*.sqlite-*")]


@pytest.mark.parametrize("folder", ["home-20260102-030405", slow("porch")])
def test_folder_registry_and_report_have_one_name_and_no_writer_files_remain(
    tmp_path: Path, folder: str
) -> None:
    config = demo_config(**{"clients.num-clients": 1, "rounds": 1, "test-samples": 20})
    out = tmp_path / "runs" / folder
    with running_broker("embedded", tmp_path / "broker") as broker:
        address = parse_address(broker.url)
        with devices(config, address, tmp_path / "devices"):
            named = folder if "-" in folder else None
            assert serve(config, address, Watched(), out=out, run=named).outcome == "finished"
    (version,) = Registry(tmp_path / "runs" / "registry").versions()
    assert version.version == folder
    assert f"run {folder}<" in (out / "report.html").read_text()
    if named is not None:
        assert json.loads((out / "summary.json").read_text())["run"] == folder
    for verb in (["report", str(out)], ["devices", str(out)], ["replay", str(out)]):
        assert main(verb) == 0
    assert main(["models", "list", "--registry", str(tmp_path / "runs" / "registry")]) == 0
    assert writer_files(tmp_path) == []


def test_starting_a_finished_run_again_reports_that_it_is_finished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["simulate", "fedavg", *WORDS, "--out", str(tmp_path / "run"), "--format", "json"]
    assert main(words) == 0
    before = (tmp_path / "run" / "history.jsonl").read_bytes()
    capsys.readouterr()
    assert main(words) == 0
    message = capsys.readouterr().err
    assert "is finished: 1 round, nothing is left to do" in message
    assert "--out" in message
    assert (tmp_path / "run" / "history.jsonl").read_bytes() == before
    assert writer_files(tmp_path) == []
    # A run of another configuration is not mistaken for this one.
    assert main([*words[:2], *WORDS, "learning-rate=0.5", *words[2 + len(WORDS) :]]) == 2


def test_a_finished_run_is_reported_without_a_broker_and_without_devices(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["fedavg", *WORDS, "federation.deliver=none", "--out", str(tmp_path / "run"), "--format", "json"]
    assert main(["simulate", *words]) == 0
    assert main(["run", *words, "--broker", "mqtt://127.0.0.1:9"]) == 0
    assert "is finished" in capsys.readouterr().err


def test_a_second_run_with_the_same_name_does_not_replace_the_models_of_the_first(tmp_path: Path) -> None:
    registry = str(tmp_path / "registry")
    for place, seed in (("a", 1), ("b", 2)):
        out = str(tmp_path / place / "home")
        assert main(["simulate", "fedavg", *WORDS, f"federation.seed={seed}", "--out", out]) == 0
        assert main(["models", "add", out, "--registry", registry]) == 0
    names = {version.version for version in Registry(Path(registry)).versions()}
    assert names == {"home", "federation-seed-2"}
