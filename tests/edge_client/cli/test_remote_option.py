"""One key of `client.toml` turns remote diagnostics off, and the doctor has checks without a connection."""

from pathlib import Path

import pytest

from edge_client.cli.commands import doctor
from edge_client.cli.doctor import broker, network
from edge_client.cli.doctor.finding import ok
from edge_client.cli.main import EDGE_CLIENT


@pytest.mark.parametrize(
    ("file", "words", "enabled"),
    [
        ("", [], True),
        ("remote-diagnostics = false", [], False),
        ("remote-diagnostics = false", ["--remote-diagnostics"], True),
        ("remote-diagnostics = true", ["--no-remote-diagnostics"], False),
    ],
)
def test_the_owner_decides(file: str, words: list[str], enabled: bool, tmp_path: Path) -> None:
    (tmp_path / "client.toml").write_text(file)
    args = EDGE_CLIENT.parse(["run", "--config", str(tmp_path / "client.toml"), *words])
    assert args.remote_diagnostics is enabled


def test_beside_an_agent_nothing_connects_in_the_devices_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("the running agent would be disconnected")

    monkeypatch.setattr(broker, "broker", fail)
    monkeypatch.setattr(network, "network", lambda *_: [ok("broker", "takes connections")])
    monkeypatch.setattr(broker, "strangers", lambda *_: ok("strangers", "are not let in"))
    args = EDGE_CLIENT.parse(["doctor", "--beside-agent", "--device-id", "pi-3"])
    assert [finding.check for finding in doctor.check_online(args)] == ["broker", "strangers"]
