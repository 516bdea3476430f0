"""Simulations started from Python."""

import subprocess
import sys
from pathlib import Path

import pytest

import edge_server
from schemas.errors import ConfigError

SMALL = ("data.source=digits", "model.name=mlp", "batch-size=50", "workers=1", "simulation.clock=[]")


def test_a_simulation_returns_a_run_that_can_be_loaded_again(tmp_path: Path) -> None:
    run = edge_server.simulate("fedavg", *SMALL, num_clients=2, rounds=2, out=tmp_path / "run")
    assert run.summary.outcome == "finished"
    assert run.history["round"] == [1, 2]
    assert all(0 <= accuracy <= 1 for accuracy in run.history["test_accuracy"])
    assert list(run.models) == [1]
    assert run.models[1].is_file()
    assert edge_server.load_run(tmp_path / "run") == run


def test_settings_are_checked_as_on_the_command_line() -> None:
    with pytest.raises(ConfigError, match="did you mean 'rounds'"):
        edge_server.simulate("fedavg", roundz=2)
    config = edge_server.load_config("fedavg", ["rounds=3"])
    assert isinstance(config, edge_server.Config)
    assert config.federation.rounds == 3
    assert "attending" in edge_server.recipes()
    with pytest.raises(ConfigError, match="found no such directory"):
        edge_server.load_run("no-such-run")


def test_importing_the_library_loads_no_heavy_packages() -> None:
    program = "import sys, edge_server; print(sorted({'torch', 'numpy', 'pydantic'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
