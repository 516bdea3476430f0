"""`edge-server run` says how to go on after Ctrl-C."""

from pathlib import Path

import pytest

from edge_client.cli.app import DONE, INTERRUPTED
from edge_server.cli.main import main
from tests.edge_server.storage.test_run_folder import record


@pytest.mark.parametrize(("code", "rounds"), [(INTERRUPTED, 1), (INTERRUPTED, 0), (DONE, 1)])
def test_after_ctrl_c_the_command_names_the_model_to_go_on_from(
    code: int,
    rounds: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run(args: object, out: Path, serve: object) -> int:
        out.mkdir()
        (out / "history.jsonl").write_text(record(1).model_dump_json() + "\n" if rounds else "")
        return code

    monkeypatch.setattr("edge_server.coordinator.launch.run_and_report", run)
    out = tmp_path / "run"
    assert main(["run", "fedavg", "data.source=digits", "--out", str(out)]) == code
    assert (f"from={out}" in capsys.readouterr().err) == (code == INTERRUPTED and rounds == 1)
