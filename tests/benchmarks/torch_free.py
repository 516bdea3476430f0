"""A device that trains without torch: `python -m tests.benchmarks torch-free`.

The wheel with its extra `onnx-client` is installed into an environment without torch. Its `edge-client run`
takes part in a federation of two rounds that ends with a delivery: tier 1 of `two-nn` on 28x28 pixels, batch
32, one thread. Measured from outside:

- processor time of the process from its start until it reports that it is connected;
- the peak of its resident set over its whole life, which ends after it has exported its model;
- the same device in a control group of 160 MiB, as with systemd's `MemoryMax=160M`: it must finish.
"""

import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import Popen

from edge_server.transport.broker.launch import running_broker
from tests.benchmarks.federation import ONE_THREAD
from tests.benchmarks.figure import Figure
from tests.benchmarks.options import Options
from tests.benchmarks.processes import Started, cpu_seconds, processes
from tests.benchmarks.resident import peak_rss
from tests.memory_limit import LimitedGroup, NoGroup, limited_group
from tests.pictures import write_pictures
from tests.wheel import NoWheel, build_wheel, install_wheel, programs_of

AREA = "without torch"
MAX_START_S, MAX_MB, LIMIT_BYTES = 1.0, 110, 160 * 1024 * 1024
REPEATS = 3
CONNECT_S, RUN_S = 60, 300
SETTINGS = (
    "model.name=two-nn", "num-clients=1", "min-clients=1", "rounds=2", "local-epochs=2", "batch-size=32",
    "data.test-samples=100", "deliver=trial", "federation.name=bench",
)  # fmt: skip


def figures(options: Options) -> list[Figure]:
    """Start, peak memory, and a run in a control group."""
    with tempfile.TemporaryDirectory(prefix="edge-bench-", dir=options.folder) as name:
        folder = Path(name)
        write_pictures(folder / "pictures.npz")
        try:
            programs = install_device(folder)
        except NoWheel as reason:
            return [Figure(AREA, "a device from the wheel", "", (), reason=str(reason))]
        runs = [run_device(programs, folder) for _ in range(1 if options.quick else REPEATS)]
        return [*_of(runs), _within_a_limit(programs, folder)]


def _of(runs: list[tuple[float, int]]) -> list[Figure]:
    starts, peaks = zip(*runs, strict=True)
    return [
        Figure(
            AREA,
            "start until connected, processor time",
            "s",
            starts,
            MAX_START_S,
            detail="`edge-client run`, user and system time until its log says that it is connected",
        ),
        Figure(
            AREA,
            "peak of a device, tier 1 of two-nn",
            "MB",
            tuple(peak / 1e6 for peak in peaks),
            MAX_MB,
            detail="VmHWM of `edge-client run` after two rounds on 576 examples of 28x28 and the export",
        ),
    ]


def _within_a_limit(programs: Path, folder: Path) -> Figure:
    name = "peak of its control group of 160 MiB"
    try:
        with limited_group("edge-bench", LIMIT_BYTES) as group:
            run_device(programs, folder, group)
            detail = (
                f"the run finished, {group.killed} processes were killed; files that other processes "
                "have read before, such as libraries, are not counted"
            )
            return Figure(AREA, name, "MB", (group.peak / 1e6,), LIMIT_BYTES / 1e6, detail=detail)
    except NoGroup as reason:
        return Figure(AREA, name, "MB", (), LIMIT_BYTES / 1e6, reason=str(reason))


def install_device(folder: Path) -> Path:
    """The programs of an environment without torch in `folder`, from the wheel; raises `NoWheel`."""
    for part in ("wheel", "environment"):
        (folder / part).mkdir()
    build_wheel(folder / "wheel")
    (wheel,) = (folder / "wheel").glob("*.whl")
    install_wheel(wheel, folder / "environment", "onnx-client")
    return programs_of(folder / "environment")


def run_device(programs: Path, folder: Path, group: LimitedGroup | None = None) -> tuple[float, int]:
    """Seconds of processor time until connected, and peak bytes, of a device whose run finishes."""
    with _state(folder) as state, running_broker("embedded", state) as broker, processes() as started:
        log = state / "device.log"
        words = [
            str(programs / "edge-client"), "run", "--broker", broker.url, "--federation", "bench",
            "--device-id", "pi", "--data", f"npz:{folder}/pictures.npz#train", "--tier", "1",
            "--threads", "1", "--state-dir", str(state / "pi"),
        ]  # fmt: skip
        command = words if group is None else group.command(words)
        device = started.start("device", command, log=log, env={**ONE_THREAD, "PYTHONPATH": ""})
        until_connected = _cpu_until_connected(device, log)
        _serve(started, broker.url, folder, state)
        peak = peak_rss(device.pid)
        if peak is None or "finished" not in log.read_text():
            raise RuntimeError(f"the device has not finished its run: {log.read_text()[-500:]}")
    return until_connected, peak


def _cpu_until_connected(device: Popen[bytes], log: Path) -> float:
    deadline = time.monotonic() + CONNECT_S
    while "connected" not in log.read_text():
        if device.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the device is not connected: {log.read_text()[-500:]}")
        time.sleep(0.005)
    return cpu_seconds(device.pid)


def _serve(started: Started, url: str, folder: Path, state: Path) -> None:
    """Run the federation until the device has its model."""
    command = [
        sys.executable, "-m", "edge_server.cli.main", "run", "heterofl", *SETTINGS,
        f"data.source=npz:{folder}/pictures.npz#test", "--broker", url, "--out", str(state / "run"),
        "--format", "json",
    ]  # fmt: skip
    started.start("server", command, log=state / "server.log", env=ONE_THREAD)
    if not started.wait("server", RUN_S):
        raise RuntimeError(f"the run has not ended in {RUN_S} s")
    started.check()


@contextlib.contextmanager
def _state(folder: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=folder) as name:
        yield Path(name)
