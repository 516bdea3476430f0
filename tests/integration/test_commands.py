"""The commands as a user types them: no broker, Ctrl-C, wrong input."""

import json
import signal
from pathlib import Path

import pytest

from edge_client.cli.main import EDGE_CLIENT
from edge_server.cli.main import EDGE_SERVER
from edge_server.transport.broker.launch import free_port, running_broker
from tests.integration.conftest import DEADLINE_S, Command, read_until


def test_a_device_without_a_broker_reports_it_and_ends_at_ctrl_c(command: Command, tmp_path: Path) -> None:
    broker = f"mqtt://127.0.0.1:{free_port()}"
    process = command(
        "edge-client", "run", "--data", "digits", "--broker", broker, "--state-dir", str(tmp_path)
    )
    output = read_until(process, "trying again")
    assert f"no connection to {broker}" in output
    assert "Traceback" not in output
    process.send_signal(signal.SIGINT)
    assert "stopped; the same command continues" in process.communicate(timeout=DEADLINE_S)[0]
    assert process.returncode == 0


def test_a_server_without_a_broker_reports_it_and_ctrl_c_leaves_a_complete_run_folder(
    command: Command, tmp_path: Path
) -> None:
    broker = f"mqtt://127.0.0.1:{free_port()}"
    out = tmp_path / "run"
    process = command(
        "edge-server", "run", "fedavg", "data.source=digits", "--broker", broker, "--out", str(out)
    )
    assert f"no connection to {broker}" in read_until(process, "trying again")
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130
    assert "Traceback" not in rest
    assert json.loads((out / "summary.json").read_text())["outcome"] == "interrupted"
    assert (out / "report.html").exists()


def test_ctrl_c_during_a_run_ends_server_and_devices_and_keeps_the_last_model(
    command: Command, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with running_broker("embedded", tmp_path / "broker") as broker:
        words = ("rounds=1000", "num-clients=1", "model.name=mlp", "local-epochs=1")
        process = command("edge-server", "demo", *words, "--broker", broker.url, "--out", str(out))
        read_until(process, "round 2 of 1000 closed")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130
    summary = json.loads((out / "summary.json").read_text())
    assert summary["outcome"] == "interrupted"
    assert summary["rounds"] >= 2
    history = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    assert [line["round"] for line in history] == list(range(1, summary["rounds"] + 1))
    versions = sorted(version.name for version in (out / "models").iterdir())
    assert versions[-1] == f"round-{summary['rounds']:04d}"
    for log in out.glob("devices/*/client.log"):
        assert "Traceback" not in log.read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("edge-server", "run", "nowhere.toml"), "nowhere.toml"),
        (("edge-server", "run", "atending"), "did you mean 'attending'"),
        (("edge-server", "run", "attending", "rounds=many"), "[federation] rounds"),
        (("edge-server", "run", "attending", "--broker", "http://host"), "unknown scheme"),
        (("edge-server", "run", "attending"), "input-shape and num-classes"),
        (("edge-server", "check", "attending", "learning-rat=1"), "did you mean 'learning-rate'"),
        (("edge-server", "check", "attending", "model.name=two-n"), "did you mean 'two-nn'"),
        (("edge-server", "report", "nowhere"), "nowhere"),
        (("edge-client", "run"), "no data: say what this device learns from with --data"),
        (("edge-client", "run", "--data", "digit"), "did you mean 'digits'"),
        (("edge-client", "run", "--data", "MNIST", "--data-root", "/nowhere"), "MNIST"),
        (("edge-client", "run", "--partition", "dirichle(1)"), "did you mean 'dirichlet'"),
        (("edge-client", "run", "--share", "6/5"), "--share '6/5'"),
        (("edge-client", "run", "--device-id", "a/b"), "--device-id 'a/b'"),
        (("edge-client", "run", "--broker", "mqtts://host", "--ca", "/nowhere.pem"), "/nowhere.pem"),
    ],
)
def test_wrong_arguments_are_named_with_a_remedy(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    """In this process, because starting one per case would take longer than all other tests here."""
    out = ["--out", str(tmp_path / "run")] if words[:2] == ("edge-server", "run") else []
    program = {"edge-server": EDGE_SERVER, "edge-client": EDGE_CLIENT}[words[0]]
    code = program.run([*words[1:], *out])
    output = "".join(capfd.readouterr())
    assert code == 2, output
    assert message in output
    assert "Traceback" not in output


def test_a_process_with_wrong_arguments_ends_with_code_2(command: Command) -> None:
    for program in ("edge-server", "edge-client"):
        output, _ = (process := command(program, "rnu")).communicate(timeout=DEADLINE_S)
        assert process.returncode == 2
        assert "rnu" in output
        assert "Traceback" not in output
