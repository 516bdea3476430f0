"""Seconds per round of Flower's simulation engine, in a process of its own with its own environment."""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from edge_client.data.partition import parse_partition, partition_indices
from edge_client.data.sources import load_source
from edge_server.config.config import Config

PROGRAM = Path(__file__).with_name("flower_run.py")
LONGEST_S = 240.0


class FlowerFailed(Exception):
    """Flower's process did not do its rounds."""


def round_seconds(config: Config, python: Path, *, workers: int, hidden: int = 200) -> list[float]:
    """Wall seconds of each round, the first one with the start of everything."""
    with tempfile.TemporaryDirectory(prefix="edge-bench-") as name:
        folder = Path(name)
        job, result = folder / "job.json", folder / "result.json"
        job.write_text(json.dumps(_job(config, folder, workers, hidden) | {"result": str(result)}))
        # Neither reports to its makers, and no proxy stands between processes of one machine.
        quiet = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "FLWR_HOME": name}
        ended = _run(
            [str(python), str(PROGRAM), str(job)],
            {**os.environ, **quiet, "PYTHONPATH": str(PROGRAM.parent)},
            folder / "said.txt",
        )
        if ended or not result.exists():
            said = (folder / "said.txt").read_text().strip()
            raise FlowerFailed(f"ended with {ended}: {said[-500:]}")
        rounds: list[float] = json.loads(result.read_text())["rounds"]
    return rounds


def _run(command: list[str], env: dict[str, str], said: Path) -> int:
    """Run it in a session of its own: what Ray has started ends with it."""
    with said.open("w") as output:
        process = subprocess.Popen(
            command, env=env, cwd=said.parent, stdout=output, stderr=output, start_new_session=True
        )
    try:
        return process.wait(LONGEST_S)
    except subprocess.TimeoutExpired:
        raise FlowerFailed(f"not done within {LONGEST_S:g} s: {said.read_text().strip()[-500:]}") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _job(config: Config, folder: Path, workers: int, hidden: int) -> dict[str, object]:
    """The job, with the data beside it as both sides share it out."""
    data = load_source(config.data.source or "digits", data_root=config.data.data_root)
    clients = config.clients.num_clients
    partition = parse_partition(config.data.partition_spec)
    shares = partition_indices(data.labels, partition, count=clients, seed=config.federation.seed)
    np.save(folder / "inputs.npy", data.inputs())
    np.save(folder / "labels.npy", data.labels)
    np.save(folder / "order.npy", np.concatenate(shares))
    np.save(folder / "ends.npy", np.cumsum([len(share) for share in shares]))
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
    }
