"""Memory where a pretrained network is trained in part: `python -m tests.benchmarks features-memory`.

- A device without torch, installed from the wheel, in a federation of two rounds over an embedded broker: 180
  pictures of 96 pixels, EfficientNet-Lite0, batch 32, one thread. The peak of its resident set, when its head
  is trained, and when its last block and what follows it are.
- A simulation on pictures that are resized, of which devices have 3,000: its peak with 20,000 pictures in the
  source over that with 4,000.
"""

import contextlib
import sys
import tempfile
from pathlib import Path

import numpy as np

from edge_server.transport.broker.launch import running_broker
from tests.benchmarks.federation import ONE_THREAD
from tests.benchmarks.figure import Figure
from tests.benchmarks.options import Options
from tests.benchmarks.processes import processes
from tests.benchmarks.resident import peak_rss, watch
from tests.benchmarks.torch_free import install_device
from tests.wheel import NoWheel

AREA = "features"
NETWORK = "edge_server.simulation.experiments.efficientnet_lite:lite0"
PARTS = {"head": 130, "last-1": 200}  # trained part, and the most MB of the device
EXAMPLES, SIDE, RUN_S = 180, 96, 600


def figures(options: Options) -> list[Figure]:
    """All figures of this benchmark."""
    with tempfile.TemporaryDirectory(prefix="edge-bench-", dir=options.folder) as name:
        folder = Path(name)
        return [*_devices(folder, ["head"] if options.quick else list(PARTS)), _simulation(folder, options)]


def _devices(folder: Path, parts: list[str]) -> list[Figure]:
    try:
        programs = install_device(folder)
    except NoWheel as reason:
        return [Figure(AREA, "a device from the wheel", "MB", (), reason=str(reason))]
    _write(folder / "pictures.npz", EXAMPLES, SIDE)
    detail = f"VmHWM of `edge-client run`: {EXAMPLES} pictures of {SIDE} pixels, batches of 32, two rounds"
    return [
        Figure(
            AREA,
            f"peak of a device without torch, EfficientNet-Lite0, {part}",
            "MB",
            (_device(programs, folder, part) / 1e6,),
            PARTS[part],
            detail=detail,
        )
        for part in parts
    ]


def _device(programs: Path, folder: Path, part: str) -> int:
    with (
        tempfile.TemporaryDirectory(dir=folder) as name,
        running_broker("embedded", Path(name)) as broker,
        processes() as started,
    ):
        state = Path(name)
        log = state / "device.log"
        device = [
            str(programs / "edge-client"), "run", "--broker", broker.url, "--federation", "bench",
            "--device-id", "pi", "--data", f"npz:{folder}/pictures.npz", "--tier", "1", "--threads", "1",
            "--model-code", NETWORK, "--state-dir", str(state / "pi"),
        ]  # fmt: skip
        words = (
            f"model.name={NETWORK}", "num-clients=1", "min-clients=1", "rounds=2", "batch-size=32",
            "local-epochs=3", "data.test-samples=10", "tiers.ratios=[0.0]", f"training.train={part}",
            "deliver=none", "federation.name=bench", f"data.source=npz:{folder}/pictures.npz",
        )  # fmt: skip
        server = [
            sys.executable, "-m", "edge_server.cli.main", "run", "fedavg", *words,
            "--broker", broker.url, "--out", str(state / "run"), "--format", "json",
        ]  # fmt: skip
        process = started.start("device", device, log=log, env={**ONE_THREAD, "PYTHONPATH": ""})
        started.start("server", server, log=state / "server.log", env=ONE_THREAD)
        started.wait("server", RUN_S)
        started.check()
        peak = peak_rss(process.pid)
        if peak is None or "round 2: update accepted" not in log.read_text():
            raise RuntimeError(f"the device has not finished its run: {log.read_text()[-500:]}")
    return peak


def _simulation(folder: Path, options: Options) -> Figure:
    many = 5000 if options.quick else 20_000
    peaks = [_peak_of_simulation(folder, count) for count in (4000, many)]
    reported = f"peak resident set of a simulation: 20 devices of 150 pictures, resized to 128, of {many:,}"
    return Figure(
        AREA,
        "a simulation of resized pictures, many over few",
        "",
        (peaks[1] / peaks[0],),
        1.3,
        detail=reported,
        raw={"bytes": peaks},
    )


def _peak_of_simulation(folder: Path, count: int) -> int:
    _write(folder / "source.npz", count, 32)
    words = (
        f"data.source=npz:{folder}/source.npz", "data.resize=128", "data.interpolation=bilinear",
        "model.name=cnn", "num-clients=20", "samples-per-client=150", "clients.fraction=0.05", "rounds=1",
        "local-epochs=1", "test-samples=100", "tiers.ratios=[0.0]", "workers=1",
    )  # fmt: skip
    command = [sys.executable, "-m", "edge_server.cli.main", "simulate", "fedavg", *words]
    with processes() as started, contextlib.ExitStack() as stack:
        out = stack.enter_context(tempfile.TemporaryDirectory(dir=folder))
        log = folder / "simulation.log"
        peaks = watch(started.start("simulation", [*command, "--out", f"{out}/run"], log=log, env=ONE_THREAD))
        started.check()
    return peaks["rss"]


def _write(path: Path, count: int, side: int) -> None:
    images = np.random.default_rng(0).integers(0, 256, (count, 3, side, side), dtype=np.uint8)
    np.savez(path, images=images, labels=np.arange(count) % 10)
