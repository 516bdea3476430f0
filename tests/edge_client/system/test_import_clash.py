"""A user's own `schemas.py` next to the package `schemas`: both commands work, or name the clash."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from edge_client.system import user_code
from edge_client.system.user_code import users_function
from schemas.errors import ConfigError
from tests.slow import mark_slow, slow

ROOT = Path(user_code.HOME)
DATA = """
import numpy as np
from helper_of_mine import COUNT

def load():
    return np.random.default_rng(0).integers(0, 255, (COUNT, 1, 4, 4), np.uint8), np.arange(COUNT) % 2
"""
NET = """
from torch import nn

def build(input_shape, num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, num_classes))
"""
SIMULATION = """
import sys
from pathlib import Path
from edge_server.config.load import load_config
from edge_server.simulation.simulator import simulate

class Nobody:
    def show(self, snapshot): ...

if __name__ == "__main__":
    sys.path.remove("")
    words = ["rounds=1", "num-clients=2", "workers=1"]
    config = load_config("fedavg", ["data.source=python:mydata:load", "model.name=mynet:build", *words])
    done = simulate(config, out=Path("run"), watcher=Nobody(), export=False)
    counted = sum(device.rounds for device in done.devices)
    print(f"{done.outcome} after {done.rounds}, counted of {counted}")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's folder with an unrelated `schemas.py`."""
    (tmp_path / "schemas.py").write_text("VERSION = 3\n")
    (tmp_path / "mydata.py").write_text(DATA)
    (tmp_path / "helper_of_mine.py").write_text("COUNT = 40\n")
    (tmp_path / "mynet.py").write_text(NET)
    return tmp_path


def run(folder: Path, *words: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python in `folder` with `path` at the front of PYTHONPATH."""
    known = os.pathsep.join(entry for entry in sys.path if entry)
    env = {**os.environ, "PYTHONPATH": f"{path}{os.pathsep}{known}" if path else known}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True, timeout=120
    )


def as_script(module: str) -> str:
    """The code of the script that pip installs for a command."""
    return f"import sys; from {module} import main; sys.path.remove(''); sys.exit(main())"


STARTS = [
    ("-c", as_script("edge_client.cli.main"), "run", "--help"),
    ("-m", "edge_server.cli.main", "recipes"),
    ("-m", "edge_server.transport.broker", "--help"),
    ("-c", "import edge_client.agent.rollout.comparison_process, schemas.messages"),
]
"""A script, a module, another module, and what a worker process imports."""
MORE_STARTS = [
    ("-c", as_script("edge_server.cli.main"), "demo", "--help"),
    ("-m", "edge_client.cli.main", "run", "--help"),
    ("-c", "import edge_server.transport.receivers.process"),
    ("-c", "import edge_server.simulation.client_work, schemas.messages"),
]


@pytest.mark.parametrize(
    "words", [*STARTS, *map(slow, MORE_STARTS)], ids=lambda words: " ".join(words[1:])[-40:]
)
def test_a_users_schemas_does_not_hide_the_package(folder: Path, words: tuple[str, ...]) -> None:
    done = run(folder, *words, path=str(folder))
    assert done.returncode == 0, done.stderr


@mark_slow
def test_worker_processes_find_user_code_in_the_current_folder(folder: Path) -> None:
    done = run(folder, "-c", SIMULATION, path=str(folder.parent / "elsewhere"))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "finished after 1, counted of 2\n"


def test_the_package_names_the_module_that_hides_its_schemas(folder: Path) -> None:
    done = run(folder, "-c", "import schemas, edge_client")
    assert done.returncode == 1
    error = done.stderr.splitlines()[-1]
    assert error.startswith("ImportError: a module called 'schemas' is imported already, from ")
    assert str(folder / "schemas.py") in error
    assert error.endswith("rename that module")


def test_schemas_may_be_imported_before_the_package(folder: Path, tmp_path: Path) -> None:
    done = run(ROOT, "-c", "import schemas, edge_server; from schemas.errors import ConfigError")
    assert done.returncode == 0, done.stderr


USES = {
    "a name of it": "from schemas import VERSION\n",
    "a part of it": "import schemas.parts\n",
    "an attribute": "import schemas\nschemas.VERSION\n",
}


@pytest.mark.parametrize("use", ["a name of it", slow("a part of it"), slow("an attribute")])
def test_user_code_that_needs_its_own_schemas_gets_an_error_about_the_clash(folder: Path, use: str) -> None:
    (folder / "mydata.py").write_text(f"{USES[use]}def load(): ...\n")
    words = (
        "-c",
        as_script("edge_client.cli.main"),
        "run",
        "--data",
        "python:mydata:load",
        "--state-dir",
        "s",
    )
    done = run(folder, *words)
    assert done.returncode == 2, done.stderr
    expected = f"{folder / 'schemas.py'} is hidden by the package 'schemas' of edge-federation: rename it"
    assert done.stderr.endswith(f"{expected}\n")
    assert "Traceback" not in done.stderr


WRONG = {
    "no.such.module:f": "there is no module 'no': install it, put its folder in PYTHONPATH, or start this",
    "os:nofun": "os.py has no function 'nofun'",
    "os:get_cwd": "has no function 'get_cwd' (did you mean 'getcwd'?)",
    "os:name": "has no function 'name'",
    "os": "expected module:function",
    ":load": "expected module:function",
    "ends:load": "importing 'ends' failed: SystemExit(3)",
    "wants:load": "importing 'wants' failed: ModuleNotFoundError(\"No module named 'no_pandas'\")",
}


@pytest.mark.parametrize("reference", WRONG)
def test_a_missing_function_is_reported_with_its_module(
    reference: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ends.py").write_text("import sys\nsys.exit(3)\n")
    (tmp_path / "wants.py").write_text("import no_pandas\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(ConfigError) as raised:
        users_function(reference, what="--data")
    assert str(raised.value).startswith("--data: ")
    assert WRONG[reference] in str(raised.value)
