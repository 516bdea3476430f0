"""What the user is told when a server stops that a standby follows."""

import argparse
from contextlib import nullcontext
from pathlib import Path

import pytest

from edge_client.cli.app import SUSPENDED
from edge_server.coordinator import launch
from edge_server.coordinator.standby.standby_status import StandbyStatus
from edge_server.coordinator.standby.writing_right import Suspended
from edge_server.storage.records import Summary


def suspended(*_: object) -> Summary:
    raise Suspended("the server was asked to stop")


@pytest.mark.parametrize("follows", [True, False])
def test_a_stopped_server_sends_nobody_back_to_the_folder_that_its_standby_takes_over(
    follows: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    StandbyStatus(standby="s", origin="attic, folder /copies/home", follows=follows).write(tmp_path)
    monkeypatch.setattr(launch, "watchers", lambda *_: nullcontext())
    arguments = argparse.Namespace(broker="mqtt://127.0.0.1:1883", ca=None, cert=None, key=None)
    assert launch.run_and_report(arguments, tmp_path, suspended) == SUSPENDED
    printed = capsys.readouterr().err
    assert ("the standby on attic, folder /copies/home continues" in printed) is follows
    assert ("the same command with --out" in printed) is not follows
