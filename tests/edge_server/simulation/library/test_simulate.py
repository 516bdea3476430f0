"""Simulations started from Python."""

import inspect
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import edge_server
from edge_server.config.load import load_config
from edge_server.observability.snapshot import WatcherGroup
from edge_server.simulation.client_work import ClientJob, EngineError, Outcome
from edge_server.simulation.simulator import simulate as run_simulation
from tests.edge_server.simulation.in_process import InProcess, in_process
from tests.edge_server.simulation.library.small import SMALL, X, Y
from tests.forked import forked_python

DEADLINE_S = 300
DIGITS = ("data.source=digits", "model.name=mlp", "batch-size=50", "workers=1", "simulation.clock=[]")
EXAMPLE = inspect.cleandoc((edge_server.__doc__ or "").partition("\n\n")[2])
OWN = """
import torch
from torch import nn
from tests.edge_server.simulation.library.small import SMALL, X, Y

torch.manual_seed(0)
given = {**SMALL, "data": (X, Y), "model": nn.Sequential(nn.Linear(6, 2)), "workers": 2}
own = edge_server.simulate("fedavg", "testers=1", **given)
print([record.test_loss for record in own.rounds])
"""


@pytest.fixture
def quick() -> Iterator[None]:
    with in_process():
        yield


@pytest.mark.usefixtures("quick")
def test_a_simulation_returns_a_run_that_can_be_loaded_again(tmp_path: Path) -> None:
    run = edge_server.simulate("fedavg", *DIGITS, num_clients=2, rounds=2, out=tmp_path / "run")
    assert run.summary.outcome == "finished"
    assert list(run.history["round"]) == [1, 2]
    assert run.history["test_accuracy"].between(0, 1).all()
    assert list(run.models) == [1]
    assert run.models[1].is_file()
    assert edge_server.load_run(tmp_path / "run") == run


def test_settings_are_checked_as_on_the_command_line() -> None:
    with pytest.raises(edge_server.ConfigError, match="did you mean 'rounds'"):
        edge_server.simulate("fedavg", roundz=2)
    with pytest.raises(edge_server.ConfigError, match="resume needs out"):
        edge_server.simulate("fedavg", resume=True)
    config = edge_server.load_config("fedavg", ["rounds=3"])
    assert isinstance(config, edge_server.Config)
    assert config.federation.rounds == 3
    assert "attending" in edge_server.recipes()
    with pytest.raises(edge_server.ConfigError, match="found no such directory"):
        edge_server.load_run("no-such-run")


def test_importing_the_library_loads_no_heavy_packages() -> None:
    program = "import sys, edge_server; dir(edge_server); print({'torch', 'numpy'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_the_module_lists_what_it_offers() -> None:
    assert set(edge_server.__all__) <= set(dir(edge_server))
    assert all(getattr(edge_server, name).__name__ == name for name in edge_server.__all__)


@pytest.mark.usefixtures("quick")
def test_a_script_needs_no_guard_and_its_network_is_in_its_workers(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(f"{EXAMPLE}\n{OWN}")
    done = subprocess.run(
        [*forked_python(), "script.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    # A slow machine shows the progress.
    assert all(line.startswith("simulation: round ") for line in done.stderr.splitlines()), done.stderr
    accuracy, losses = done.stdout.splitlines()
    assert 0 < float(accuracy) < 1
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(6, 2))
    same = edge_server.simulate("fedavg", data=(X, Y), model=layers, out=tmp_path / "same", **SMALL)
    assert losses == str([record.test_loss for record in same.rounds])


@pytest.mark.usefixtures("quick")
def test_overrides_also_apply_to_a_configuration(tmp_path: Path) -> None:
    config = edge_server.load_config("fedavg", ["model.name=mlp", "rounds=9"])
    run = edge_server.simulate(config, data=(X, Y), out=tmp_path / "run", **SMALL)
    assert [record.round for record in run.rounds] == [1, 2]


@pytest.mark.usefixtures("quick")
def test_the_results_are_those_of_the_command(tmp_path: Path) -> None:
    run = edge_server.simulate("fedavg", *DIGITS, num_clients=2, rounds=1, export=False, out=tmp_path / "a")
    words = [*DIGITS, "num-clients=2", "rounds=1"]
    run_simulation(load_config("fedavg", words), out=tmp_path / "b", watcher=WatcherGroup(), export=False)
    for name in ("history.jsonl", "federation.toml", "models/round-0001/state.safetensors"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert run == edge_server.load_run(tmp_path / "a")


@pytest.mark.usefixtures("quick")
def test_a_finished_run_is_returned_and_others_are_not_overwritten(tmp_path: Path) -> None:
    seen: list[int] = []
    given = {**SMALL, "data": (X, Y), "model": "mlp", "out": tmp_path / "run"}
    first = edge_server.simulate("fedavg", **given, on_round=lambda record: seen.append(record.round))
    again = edge_server.simulate("fedavg", **given, on_round=lambda record: seen.append(record.round))
    assert (again, seen) == (first, [1, 2])
    with pytest.raises(
        edge_server.ConfigError, match="holds an earlier run: continue it with --resume, name another folder"
    ):
        edge_server.simulate("fedavg", "learning-rate=0.5", **given)


@pytest.mark.usefixtures("quick")
def test_runs_without_a_folder_of_their_own_get_one_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("edge_server.storage.service_folder.run_name", lambda name: f"{name}-now")
    runs = [edge_server.simulate("fedavg", data=(X, Y), model="mlp", **SMALL) for _ in range(2)]
    assert [run.folder.name for run in runs] == ["fedavg-now", "fedavg-now-2"]


@pytest.fixture
def usual_signals() -> Iterator[None]:
    """What a program's signals do, whatever this process does with them."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("quick", "usual_signals")
@pytest.mark.parametrize(
    ("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
)
def test_a_signal_closes_the_run_and_ends_a_loop_over_runs(
    tmp_path: Path, number: signal.Signals, raised: type[BaseException]
) -> None:
    given = {**SMALL, "data": (X, Y), "model": "mlp", "rounds": 3}

    def loop() -> None:
        for place in range(3):
            edge_server.simulate(
                "fedavg", out=tmp_path / str(place), **given, on_round=lambda _: signal.raise_signal(number)
            )

    with pytest.raises(raised):
        loop()
    assert not (tmp_path / "1").exists()
    stopped = edge_server.load_run(tmp_path / "0")
    assert (stopped.summary.outcome, len(stopped.rounds)) == ("interrupted", 1)

    seen: list[int] = []
    done = edge_server.simulate(
        "fedavg", out=tmp_path / "0", **given, resume=True, on_round=lambda record: seen.append(record.round)
    )
    assert (done.summary.outcome, seen) == ("finished", [2, 3])


@pytest.mark.usefixtures("quick")
def test_a_thread_that_gets_no_signals_can_simulate(tmp_path: Path) -> None:
    with ThreadPoolExecutor() as threads:
        given = {**SMALL, "data": (X, Y), "model": "mlp", "out": tmp_path / "run"}
        run = threads.submit(edge_server.simulate, "fedavg", **given).result(DEADLINE_S)
    assert run.summary.outcome == "finished"


class Dies(InProcess):
    """An engine whose worker dies in its first job."""

    def result(self, handle: ClientJob, *, timeout_s: float) -> Outcome | None:
        raise EngineError("a worker process has died of SIGSEGV")


def test_a_failed_run_raises_its_cause(tmp_path: Path) -> None:
    with (
        in_process(Dies),
        pytest.raises(edge_server.RunFailed, match=rf"died of SIGSEGV; the run is in {tmp_path}"),
    ):
        edge_server.simulate("fedavg", data=(X, Y), model="mlp", out=tmp_path / "run", **SMALL)


@pytest.mark.usefixtures("quick")
def test_a_callback_is_called_once_per_round_and_what_it_raises_is_raised(tmp_path: Path) -> None:
    seen: list[Any] = []

    def stop(record: Any) -> None:
        seen.append(record.round)
        raise ZeroDivisionError("of the user")

    with pytest.raises(ZeroDivisionError, match="of the user"):
        edge_server.simulate("fedavg", data=(X, Y), model="mlp", out=tmp_path / "run", on_round=stop, **SMALL)
    assert seen == [1]
