"""The scripts of `make arm64` that write a round of training, and train it, work on this machine too."""

import os
import subprocess
from pathlib import Path

import numpy as np

from tests.forked import forked_python
from tests.forked.connection import ADDRESS

REPOSITORY = Path(__file__).parents[2]


def script(name: str, *words: str) -> None:
    command = [*forked_python(), str(REPOSITORY / "deploy" / "arm64" / name), *words]
    kept = {name: os.environ[name] for name in ("OMP_NUM_THREADS", "EDGE_GRAPHS", ADDRESS)}
    variables = {"PYTHONPATH": str(REPOSITORY), **kept}
    subprocess.run(command, check=True, cwd=REPOSITORY, env=variables, timeout=300)


def test_a_written_round_is_trained_without_torch(tmp_path: Path) -> None:
    script("write_rounds.py", str(tmp_path), "mlp/1")
    script("train_rounds.py", str(tmp_path), "here")
    script("compare_rounds.py", str(tmp_path), "here", "here")
    (written,) = tmp_path.iterdir()
    before, after = (dict(np.load(written / name)) for name in ("arrays.npz", "here.npz"))
    assert before.keys() == after.keys()
    assert any((before[name] != after[name]).any() for name in before)
