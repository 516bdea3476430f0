"""A run over a broker that starts from the model of an earlier run."""

import json
import signal
from pathlib import Path

from edge_server.config.load import load_config
from edge_server.coordinator.coordinator import assemble
from edge_server.storage.run_folder import RunFolder
from tests.integration.conftest import DEADLINE_S, Command, read_until


def test_a_server_starts_from_the_model_of_another_run_and_records_it(
    command: Command, tmp_path: Path
) -> None:
    words = ["data.source=digits", "model.name=mlp"]
    config = load_config("fedavg", [*words, "federation.seed=5"])
    assemble(config, "run-1", RunFolder.create(tmp_path / "first", config)).storage.close()
    first = tmp_path / "first" / "models" / "round-0000"
    out = tmp_path / "second"
    process = command(
        "edge-server", "run", "fedavg", *words, f"from={first}", "--broker", "embedded", "--out", str(out)
    )
    read_until(process, f"starts from {first} (run run-1, round 0)")
    read_until(process, "connected")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=DEADLINE_S)
    about = json.loads((out / "summary.json").read_text())["started_from"]
    assert (about["run"], about["round"]) == ("run-1", 0)
    initial = out / "models" / "round-0000" / "state.safetensors"
    assert initial.read_bytes() == (first / "state.safetensors").read_bytes()
