"""Memory of a device: `python -m tests.benchmarks client-memory`.

- A model of 101 MB is received, loaded into a network, and sent back: growth of the process over the model's
  bytes. A process that holds only the network would be at 1.
- Training the tier-1 `two-nn`: growth of a process in two rounds, over the prediction of the cost model
  (`edge_client/training/cost_model.py`), measured by the code of `make test-memory`
  (`tests/training_memory`).
- A whole device, `edge-client run` with a broker and a server: `two-nn`, 600 images of MNIST, batch 32. The
  peak of its resident set counts every page of every library, shared with other processes or not; its
  proportional set counts a page that n processes share as 1/n.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from edge_server.transport.broker.launch import running_broker
from tests.benchmarks.federation import ONE_THREAD
from tests.benchmarks.figure import Figure
from tests.benchmarks.options import Options
from tests.benchmarks.processes import processes
from tests.benchmarks.resident import watch

AREA = "client memory"
MAX_MB = 350
REPEATS = 2
TRAININGS = 9
"""More repetitions: fragmentation changes the result of one training by up to a tenth."""
TRAINING = "two-nn/1/sgd/32"
END_S = 120


def figures(options: Options) -> list[Figure]:
    """All figures of this benchmark."""
    repeats = 1 if options.quick else REPEATS
    taken = [_travelled(options), *_trained(1 if options.quick else TRAININGS)]
    if not (options.data_root / "MNIST").is_dir():
        return [*taken, Figure(AREA, "a device process", "MB", (), MAX_MB, reason="no MNIST here")]
    return [*taken, *_devices(options, repeats)]


def _travelled(options: Options) -> Figure:
    ratios, raw = [], []
    for _ in range(1 if options.quick else REPEATS):
        with _folder(options) as folder:
            _child("prepare", folder / "first", "small")
            _child("prepare", folder / "then", "tiny" if options.quick else "large")
            raw.append(json.loads(_child("travel", folder)))
            ratios.append(raw[-1]["growth"] / raw[-1]["model"])
    size = raw[0]["model"] / 1e6
    reported = (
        f"growth over {size:.0f} MB: received in chunks, loaded into the network, answered, sent in chunks"
    )
    name = "receive and send a model, over its size"
    return Figure(AREA, name, "", tuple(ratios), 1.2, detail=reported, raw={"runs": raw})


def _trained(repeats: int) -> list[Figure]:
    raw = [json.loads(_output("tests.training_memory", TRAINING)) for _ in range(repeats)]
    ratios = tuple(measurement["measured"] / measurement["predicted"] for measurement in raw)
    predicted = raw[0]["predicted"] / 1e6
    reported = f"growth in two rounds of batch 32, one thread, over the cost model's {predicted:.1f} MB"
    name = "train the tier-1 two-nn, over its cost model"
    why = "the model predicts the likely value within a fifth; the fragmentation of freed memory is random"
    return [Figure(AREA, name, "", ratios, 1.0, detail=reported, reason=why, raw={"runs": raw})]


def _devices(options: Options, repeats: int) -> list[Figure]:
    runs = [_device(options, deliver=False) for _ in range(repeats)]
    with_export = _device(options, deliver=True)
    reported = "edge-client run: agent and training in one process, two rounds; peak resident set"
    resident = tuple(run["rss"] / 1e6 for run in runs)
    proportional = tuple(run["pss"] / 1e6 for run in runs)
    name = "a device process"
    return [
        Figure(AREA, name, "MB", resident, MAX_MB, detail=reported, raw={"runs": runs}),
        Figure(AREA, f"{name}, shared pages shared out", "MB", proportional, detail="proportional set"),
        Figure(
            AREA,
            f"{name} that exports its model at the end",
            "MB",
            (with_export["rss"] / 1e6,),
            detail="torch's exporter, onnx and onnxruntime in the same process; peak resident set",
        ),
    ]


def _device(options: Options, *, deliver: bool) -> dict[str, int]:
    """Peak memory of one device process in a run of two rounds."""
    with (
        _folder(options) as folder,
        running_broker("embedded", folder / "broker") as broker,
        processes() as started,
    ):
        words = [
            "data.source=MNIST", f'data.data-root="{options.data_root.resolve()}"', "data.test-samples=100",
            "model.name=two-nn", "num-clients=1", "min-clients=1", "rounds=2", "local-epochs=1",
            "batch-size=32", f"deliver={'trial' if deliver else 'none'}", "federation.name=bench",
        ]  # fmt: skip
        server = [
            *_program("edge_server.cli.main"), "run", "fedavg", *words,
            "--broker", broker.url, "--out", str(folder / "run"), "--format", "json",
        ]  # fmt: skip
        device = [
            *_program("edge_client.cli.main"), "run", "--once",
            "--broker", broker.url, "--federation", "bench",
            "--device-id", "pi", "--data", "MNIST", "--data-root", str(options.data_root.resolve()),
            "--share", "1/100", "--tier", "1", "--threads", "1", "--state-dir", str(folder / "pi"), "--quiet",
        ]  # fmt: skip
        started.start("server", server, log=folder / "server.log", env=ONE_THREAD)
        peaks = watch(started.start("device", device, log=folder / "device.log", env=ONE_THREAD))
        started.wait("server", END_S)
        started.check()
    return peaks


@contextlib.contextmanager
def _folder(options: Options) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="edge-bench-", dir=options.folder) as folder:
        for name in ("first", "then"):
            (Path(folder) / name).mkdir()
        yield Path(folder)


def _child(work: str, folder: Path, *words: str) -> str:
    return _output("tests.benchmarks.client_work", work, str(folder), *words)


def _output(module: str, *words: str) -> str:
    # The cost model is for one thread: each thread has its own working memory.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [*_program(module), *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout


def _program(module: str) -> list[str]:
    return [sys.executable, "-m", module]
