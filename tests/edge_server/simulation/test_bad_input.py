"""Wrong simulation settings end with exit code 2 and a message that names a remedy."""

from pathlib import Path

import pytest
import torch

from edge_server.cli.main import main
from tests.edge_server.simulation import small
from tests.edge_server.simulation.small import SMALL


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fedavgg", "data.source=digits"], "did you mean 'fedavg'"),
        (["fedavg", "model.input-shape=[1, 28, 28]", "num-classes=10"], "[data] source: none is named"),
        (["fedavg", "data.source=digitz"], "did you mean 'digits'"),
        (["fedavg", *SMALL, 'simulation.clock=["pi-zero"]'], "did you mean 'pi-zero-2'"),
        (["fedavg", *SMALL, "simulation.engine=locale"], "'local'"),
        (["fedavg", *SMALL, "simulation.worker=2"], "did you mean 'workers'"),
        (["fedavg", *SMALL, "partition=shards", "shards=1000"], "more than 1438 examples"),
        (["fedavg", *SMALL, "num-clients=2000"], "more than 1438 examples"),
        (["fedavg", *SMALL, "samples-per-client=600"], "need 3000 examples, the data has 1438"),
        (["fedavg", *SMALL, "--resume"], "--resume needs --out"),
        pytest.param(
            ["fedavg", *SMALL, "--device", "cuda"],
            "no CUDA device",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device"),
        ),
    ],
)
def test_wrong_input_names_the_remedy(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = [] if "--resume" in words else ["--out", str(tmp_path / "run")]
    assert main(["simulate", *words, *out]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_there_must_be_a_run_to_resume(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "fedavg", *SMALL, "--out", str(tmp_path), "--resume"]) == 2
    assert "there is no run in" in capsys.readouterr().err


def test_only_rounds_and_workers_may_differ_when_a_run_is_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small.run(tmp_path / "run", "fedavg", "num-clients=2", "rounds=1")
    words = ["simulate", "fedavg", *SMALL, "num-clients=2", "rounds=2", "learning-rate=0.5"]
    assert main([*words, "--out", str(tmp_path / "run"), "--resume"]) == 2
    assert "training.learning-rate is 0.5" in capsys.readouterr().err
