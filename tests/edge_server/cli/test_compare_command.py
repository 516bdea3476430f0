"""`edge-server compare`: the examples of its help, what it refuses before the first run, and its notices."""

import shlex
import signal
import sys
from pathlib import Path

import pytest
import torch

from edge_server.cli.commands.compare import EXAMPLES
from edge_server.cli.main import EDGE_SERVER
from edge_server.observability.report.report import write_report
from edge_server.simulation import simulator
from edge_server.simulation.experiments import runner
from edge_server.simulation.experiments.cells import RunSelection, make_plan
from edge_server.simulation.experiments.compare import named_experiment
from edge_server.storage.run_files import read_run_files
from tests.edge_server.own_networks import NAME

PROGRAM = "  edge-server compare "
# A comment is three or more spaces away.
LINES = [
    line.removeprefix(PROGRAM).split("   ")[0] for line in EXAMPLES.splitlines() if line.startswith(PROGRAM)
]


@pytest.mark.parametrize("line", [line for line in LINES if not line.startswith("--list")])
def test_every_example_of_the_help_names_rows_and_columns_that_exist(line: str) -> None:
    args = EDGE_SERVER.parse(["compare", *shlex.split(line)])
    overrides = tuple(word for word in args.words if "=" in word)
    choice = RunSelection(args.scale, args.seeds, tuple(args.only), overrides, tuple(args.columns))

    assert make_plan(named_experiment([word for word in args.words if "=" not in word]), choice).runs


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_without_a_gpu_none_of_the_runs_begins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "compare",
        "fedavg",
        "attending",
        "data.source=digits",
        "device=cuda",
        "--out",
        str(tmp_path / "out"),
    ]

    assert EDGE_SERVER.run(words) == 2
    assert "torch finds no CUDA device here" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_seeds_without_commas_are_said_with_the_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    assert EDGE_SERVER.run(["compare", "league", "--seeds", "1", "2", "--scale", "small"]) == 2
    assert "'2' is not a recipe: list seeds with commas: --seeds 1,2" in capsys.readouterr().err


def test_results_need_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").touch()
    assert EDGE_SERVER.run(["compare", "fedavg", "data.source=digits", "--out", str(tmp_path / "out")]) == 2
    assert "out: the folder cannot be made: File exists" in capsys.readouterr().err


def test_compare_runs_what_simulate_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["fedavg", "rounds=1", "num-clients=2", "model.name=mlp", "workers=1", "--out"]
    assert EDGE_SERVER.run(["simulate", *words, str(tmp_path / "simulated"), "--seed", "1"]) == 0
    assert EDGE_SERVER.run(["compare", *words, str(tmp_path / "compared"), "--seeds", "1"]) == 0
    exact = ["compare", *words, str(tmp_path / "exact"), "--seeds", "1", "--codecs", "float32"]
    assert EDGE_SERVER.run(exact) == 0
    assert "float32 on both ways" in capsys.readouterr().err

    simulated, compared, float32 = (
        read_run_files(tmp_path / path).summary
        for path in ("simulated", "compared/runs/fedavg-result-seed1", "exact/runs/fedavg-result-seed1")
    )
    assert (compared.test_metrics, compared.uplink_bytes) == (simulated.test_metrics, simulated.uplink_bytes)
    assert float32.uplink_bytes > 2 * simulated.uplink_bytes


def test_sigterm_before_the_first_round_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Before simulations have handlers of their own.
    monkeypatch.setattr(runner, "run_all", lambda *_, **__: signal.raise_signal(signal.SIGTERM))

    words = ["compare", "fedavg", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["edge-server", *words])

    assert EDGE_SERVER.run(words) == 143
    assert f"interrupted; to continue: edge-server {shlex.join(words)}" in capsys.readouterr().err


def test_ctrl_c_at_the_end_of_a_run_begins_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(folder: Path) -> None:
        signal.raise_signal(signal.SIGINT)
        write_report(folder)

    monkeypatch.setattr(simulator, "write_report", interrupted)
    words = [
        "compare",
        "fedavg",
        "rounds=1",
        "num-clients=2",
        "model.name=mlp",
        "workers=1",
        "--seeds",
        "1,2",
    ]

    assert EDGE_SERVER.run([*words, "--out", str(tmp_path)]) == 130

    assert "interrupted; to continue: " in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "runs").iterdir() if path.is_dir()] == ["fedavg-result-seed1"]
    assert read_run_files(tmp_path / "runs" / "fedavg-result-seed1").summary.outcome == "finished"


def test_a_notice_of_several_runs_is_printed_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "attending", "heterofl", f"data.source=python:{NAME}:pictures", "--seeds", "1,2"]
    run = ["rounds=1", "num-clients=2", f"model.name={NAME}:linear", "--out", str(tmp_path / "out")]

    assert EDGE_SERVER.run([*words, *run]) == 0
    assert capsys.readouterr().err.count("has no channels that can be pruned") == 1
