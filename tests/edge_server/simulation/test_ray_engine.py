"""The engine `ray`: a cluster of two workers on this machine has the same results as the local engine."""

import os
import select
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from edge_server.cli.main import main
from edge_server.observability.snapshot import Snapshot
from edge_server.simulation import engines
from tests.edge_server.simulation.small import SMALL, StopAfter, history, last_model, run

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: .[ray]")
long = pytest.mark.timeout(600)
with_chaos = pytest.mark.skipif(
    os.environ.get("CHAOS_EVERY_WRITE") != "1", reason="only `make chaos` runs these tests"
)
"""Starting a cluster takes longer than its tests."""

MIXED = ("num-clients=5", "fraction=0.6", "rounds=3", "workers=2")


class Onlooker:
    """A watcher that records every new descendant process."""

    def __init__(self) -> None:
        # The fork server of the local engine remains for all tests.
        self._before = _descendants(os.getpid())
        self.processes: dict[int, int] = {}

    def show(self, snapshot: Snapshot) -> None:
        for pid in _descendants(os.getpid()) - self._before - self.processes.keys():
            try:
                self.processes[pid] = os.pidfd_open(pid)
            except ProcessLookupError:
                continue

    def all_ended(self, *, timeout_s: float) -> bool:
        going = set(self.processes.values())
        while going:
            ended, _, _ = select.select(going, [], [], timeout_s)
            if not ended:
                return False
            going -= set(ended)
        for descriptor in self.processes.values():
            os.close(descriptor)
        return True


def _descendants(root: int) -> set[int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                # "pid (name) state parent": a name may contain any character, including brackets.
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
    found: set[int] = set()
    level = {root}
    while level:
        level = {pid for pid, parent in parents.items() if parent in level}
        found |= level
    return found


def _private_states(out: Path) -> dict[str, bytes]:
    folder = out / "clients"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.safetensors")}


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of SCAFFOLD with the local engine; its devices store a control variate between rounds."""
    out = tmp_path_factory.mktemp("local") / "run"
    assert run(out, "scaffold", *MIXED).outcome == "finished"
    return out


@needs_ray
@long
@with_chaos
def test_a_cluster_produces_the_same_bytes_as_the_local_engine(local: Path, tmp_path: Path) -> None:
    out = tmp_path / "ray"
    assert run(out, "scaffold", *MIXED, "engine=ray", engine=None).outcome == "finished"
    assert (out / "history.jsonl").read_bytes() == (local / "history.jsonl").read_bytes()
    assert last_model(out) == last_model(local)
    assert _private_states(out) == _private_states(local) != {}


@needs_ray
@long
@with_chaos
@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc")
def test_an_interrupted_cluster_is_shut_down_and_the_local_engine_resumes_its_run(
    local: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    onlooker = Onlooker()
    stopper = StopAfter(1)

    class Both:
        def show(self, snapshot: Snapshot) -> None:
            onlooker.show(snapshot)
            stopper.show(snapshot)

    assert run(out, "scaffold", *MIXED, "engine=ray", watcher=Both(), engine=None).outcome == "interrupted"
    # The store and the manager of the cluster, and at least two workers.
    assert len(onlooker.processes) >= 4
    assert onlooker.all_ended(timeout_s=120)
    assert len(history(out)) == 1
    assert run(out, "scaffold", *MIXED, resume=True).outcome == "finished"
    assert (out / "history.jsonl").read_bytes() == (local / "history.jsonl").read_bytes()
    assert last_model(out) == last_model(local)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["simulation.engine=rays"], "did you mean 'ray'"),
        (["ray-address=10.0.0.1:6379"], "ray-address is for engine = 'ray'"),
        pytest.param(["engine=ray", "ray-address=127.0.0.1:1"], "no Ray at '127.0.0.1:1'", marks=needs_ray),
    ],
)
def test_an_unavailable_engine_is_refused_with_the_remedy(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", "fedavg", *SMALL, *words, "--out", str(tmp_path / "run")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_without_ray_the_message_names_the_install_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    assert main(["simulate", "fedavg", *SMALL, "engine=ray", "--out", str(tmp_path / "run")]) == 2
    assert "pip install 'edge-federation[ray]'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
