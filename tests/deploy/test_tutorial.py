"""The tutorial's blocks, run as printed on its page."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_server.config.load import load_config
from edge_server.observability.snapshot import Snapshot
from edge_server.simulation.simulator import simulate
from edge_server.storage.run_files import read_run_files
from edge_server.transport.broker.launch import find_mosquitto, free_port
from tests.deploy.pages import DOCS, ROOT, SETUP, blocks, end_group, files_of, write_files
from tests.edge_server.simulation.in_process import in_process

PAGE = DOCS / "guides" / "start" / "own-model-and-data.md"
DEADLINE_S = 900


def own_lines(name: str) -> int:
    return sum(bool(line.strip()) for line in files_of(PAGE)[name].split("\n")[1:])


class Unwatched:
    """A display that shows nothing."""

    def show(self, snapshot: Snapshot) -> None:
        pass


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with only the page's files, in which commands run."""
    write_files(PAGE, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    yield tmp_path
    sys.modules.pop("mynet", None)


def test_the_users_own_code_is_as_short_as_the_page_claims() -> None:
    assert (own_lines("mynet.py"), own_lines("federation.toml")) == (13, 15)
    assert "thirteen lines of `mynet.py` and the fifteen of `federation.toml`" in PAGE.read_text()


def test_the_files_of_the_page_form_a_federation(folder: Path) -> None:
    """One round without ONNX files; `make try-docs` runs the whole page."""
    subprocess.run([sys.executable, "make_data.py"], check=True, timeout=DEADLINE_S)
    config = load_config("federation.toml", ["rounds=1", "local-epochs=1", "simulation.workers=1"])
    with in_process():
        summary = simulate(config, out=folder / "run", watcher=Unwatched(), export=False)
    assert (summary.outcome, len(summary.devices)) == ("finished", 3)
    assert read_run_files(folder / "run").history[0].tier_accuracy.keys() == {1, 2, 3}
    assert "mynet:net" in (folder / "run" / "report.md").read_text()


@pytest.mark.timeout(2 * DEADLINE_S)
@pytest.mark.skipif(os.environ.get("TRY_DOCS") != "all", reason="takes two minutes; run by make try-docs")
@pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not installed")
def test_the_whole_page_runs_as_printed(folder: Path) -> None:
    port = str(free_port())
    script = "".join(text for language, text in blocks(PAGE) if language == "sh").replace("1883", port)
    variables = {
        "ROOT": str(ROOT),
        "PYTHON": sys.executable,
        "MOSQUITTO": str(find_mosquitto()),
        "OMP_NUM_THREADS": "1",
    }
    path = f"{Path(str(find_mosquitto())).parent}:{os.environ['PATH']}"
    # All processes of the page belong to one process group, which is killed at the end.
    shell = subprocess.Popen(
        ["bash", "-c", SETUP + script],
        env={**os.environ, **variables, "PATH": path},
        # A file instead of a pipe, which a remaining broker would keep open.
        stdout=(folder / "output").open("w"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        assert shell.wait(timeout=DEADLINE_S) == 0, (folder / "output").read_text()
    finally:
        end_group(shell.pid)
    simulated, devices = (read_run_files(folder / "runs" / name) for name in ("simulated", "devices"))
    for run in (simulated, devices):
        assert run.summary.outcome == "finished"
        # With three classes chance level is one third.
        assert (run.summary.test_accuracy or 0) > 0.6
    assert (
        simulated.federation_toml.replace('deliver = "none"', 'deliver = "trial"') == devices.federation_toml
    )
    sizes = [(folder / f"state/board-{n}/models/model.onnx").stat().st_size for n in (1, 3)]
    assert sizes[0] < 0.7 * sizes[1]
    assert "2 runs compared" in (folder / "compare.html").read_text()
