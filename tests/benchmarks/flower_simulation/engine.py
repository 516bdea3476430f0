"""Seconds per round of Flower's simulation engine, in its own process and environment."""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from edge_client.data.dataset import LabelledData
from edge_client.data.partition import parse_partition, partition_indices
from edge_client.data.sources import load_source
from edge_server.config.config import Config

PROGRAM = Path(__file__).with_name("flower_run.py")
LONGEST_S = 600.0


class FlowerFailed(Exception):
    """Flower's process did not complete its rounds."""


def round_seconds(config: Config, python: Path, *, workers: int, hidden: int = 200) -> list[float]:
    """Wall seconds of each round; the first includes the start of the engine."""
    rounds: list[float] = _result(config, python, workers=workers, hidden=hidden, test=None)["rounds"]
    return rounds


def accuracies(
    config: Config, python: Path, test: LabelledData, *, workers: int, hidden: int = 200
) -> list[tuple[float, float]]:
    """Wall seconds since the start until each round is tested, and the accuracy that was found."""
    found = _result(config, python, workers=workers, hidden=hidden, test=test)
    return [(seconds, accuracy) for seconds, accuracy in found["tested"]]


def head_rounds(
    config: Config, python: Path, frozen: Path, *, width: int, workers: int
) -> list[tuple[float, float]]:
    """Wall and processor seconds of each round after the first, of heads behind a traced network.

    Features have `width` numbers, and all clients train in a round.
    """

    def make(folder: Path) -> dict[str, object]:
        head = {"frozen": str(frozen), "head": [width, config.num_classes or 10]}
        return _job(config, folder, workers, 0, None, as_bytes=True) | head

    result = _run_job(make, python)
    processor = result["processor"]
    return [
        (wall, now - before)
        for wall, before, now in zip(result["rounds"][1:], processor, processor[1:], strict=False)
    ]


def _result(
    config: Config, python: Path, *, workers: int, hidden: int, test: LabelledData | None
) -> dict[str, Any]:
    return _run_job(lambda folder: _job(config, folder, workers, hidden, test), python)


def _run_job(make: Callable[[Path], dict[str, object]], python: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="edge-bench-") as name:
        folder = Path(name)
        job, result = folder / "job.json", folder / "result.json"
        job.write_text(json.dumps(make(folder) | {"result": str(result)}))
        # Switch off the usage reports of Flower and Ray.
        quiet = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "FLWR_HOME": name}
        ended = _run(
            [str(python), str(PROGRAM), str(job)],
            {**os.environ, **quiet, "PYTHONPATH": str(PROGRAM.parent)},
            folder / "output.txt",
        )
        if ended or not result.exists():
            output = (folder / "output.txt").read_text().strip()
            raise FlowerFailed(f"ended with {ended}: {output[-500:]}")
        found: dict[str, Any] = json.loads(result.read_text())
    return found


def _run(command: list[str], env: dict[str, str], log: Path) -> int:
    """Run a command in its own session, so that processes started by Ray end with it."""
    with log.open("w") as output:
        process = subprocess.Popen(
            command, env=env, cwd=log.parent, stdout=output, stderr=output, start_new_session=True
        )
    try:
        return process.wait(LONGEST_S)
    except subprocess.TimeoutExpired:
        raise FlowerFailed(f"not done within {LONGEST_S:g} s: {log.read_text().strip()[-500:]}") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _job(
    config: Config,
    folder: Path,
    workers: int,
    hidden: int,
    test: LabelledData | None,
    *,
    as_bytes: bool = False,
) -> dict[str, object]:
    """The job; writes its data, shared out as on our side, to `folder`."""
    data = load_source(config.data.source or "digits", data_root=config.data.data_root)
    clients = config.clients.num_clients
    partition = parse_partition(config.data.partition_spec)
    shares = partition_indices(data.labels, partition, count=clients, seed=config.federation.seed)
    most = config.data.samples_per_client
    shares = shares if most is None else [share[:most] for share in shares]
    np.save(folder / "inputs.npy", data.images if as_bytes else data.inputs())
    np.save(folder / "labels.npy", data.labels)
    np.save(folder / "order.npy", np.concatenate(shares))
    np.save(folder / "ends.npy", np.cumsum([len(share) for share in shares]))
    if test is not None:
        np.save(folder / "test-inputs.npy", test.inputs())
        np.save(folder / "test-labels.npy", test.labels)
    plan = config.training
    return {
        "data": str(folder),
        "layers": [int(np.prod(data.input_shape)), hidden, data.num_classes],
        "clients": clients,
        "fraction": config.clients.fraction,
        "rounds": config.federation.rounds,
        "epochs": plan.local_epochs,
        "batch": plan.batch_size,
        "learning_rate": plan.learning_rate,
        "momentum": plan.momentum,
        "workers": workers,
        "tests": test is not None,
    }
