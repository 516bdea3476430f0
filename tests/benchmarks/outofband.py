"""A 100 MB model to ten devices and ten updates of that size back: through an object store or the broker.

One round of the real server and of real agents (five processes with two each), with the broker that a run
would start here. Only the strategy and the training are stand-ins: model and updates are prepared random
bytes, so that only their transfer is timed, with all checks (chunk checksums, sha256 of every blob on both
sides) and every sync to disk, from the planning, including the upload of the model to the store, to the last
update that counts. Past the broker they go through `edge-server object-store`, a separate process, over HTTP
on loopback; through the broker they go in 256 kB chunks. Both ways alternate on the same machine with the
same devices, so the ratio is fair, except that loopback has no latency and that all processes share the
cores. One disk instead of those of twelve machines would dominate the measurement, so files are stored in
memory if enough is free (`ROOM_BYTES` in /dev/shm); a sync then costs nothing on either side.

Bytes through the broker are counted by the server, both ways.
"""

import contextlib
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edge_client.storage.blob_store import BlobStore
from edge_client.transport.broker_link import parse_address
from edge_server.cli.demo import end_device
from edge_server.config.config import Config
from edge_server.config.load import load_config
from edge_server.coordinator.publisher import open_object_store
from edge_server.coordinator.server import Server
from edge_server.transport.broker.launch import running_broker
from tests.benchmarks.figure import Figure
from tests.benchmarks.light_devices import FEDERATION
from tests.benchmarks.light_server import LightCoordinator, Nobody
from tests.benchmarks.options import Options
from tests.benchmarks.processes import processes

DEVICES, PROCESSES = 10, 5
MODEL_MB, QUICK_MB = 100, 2
DEADLINE_S = 240.0
MEMORY, ROOM_BYTES = Path("/dev/shm"), 8 * 10**9
AREA = "out of band"


@dataclass(frozen=True)
class Taken:
    """One round: its seconds, and the bytes through the broker."""

    seconds: float
    broker_bytes: int


def round_trip(folder: Path, size: int, *, store: str | None, secret: Path) -> Taken:
    """Run one round through the broker or, with a store, past it; blobs have `size` bytes."""
    config = _config(store, secret)
    names = [f"device-{index:02d}" for index in range(DEVICES)]
    generator = np.random.default_rng(0)
    for name in names:
        ref = BlobStore(folder / name / "blobs", durable=False).put_blob(generator.bytes(size))
        (folder / name / "update.json").write_text(ref.model_dump_json())
    with (
        running_broker("auto", folder / "broker") as broker,
        open_object_store(config.object_store, folder / "object-store") as object_store,
        _devices(broker.url, folder, names),
    ):
        coordinator: Any = LightCoordinator(config, folder / "server", generator.bytes(size), object_store)
        server = Server(parse_address(broker.url), coordinator, Nobody())
        limit = threading.Timer(DEADLINE_S, server.stop)
        limit.start()
        try:
            summary = server.run()
        finally:
            limit.cancel()
        if object_store is not None:
            object_store.forget()
    if summary.outcome != "finished" or any(device.rounds != 1 for device in summary.devices):
        raise RuntimeError(f"the round is incomplete: {summary.outcome} {summary.detail}")
    return Taken(coordinator.ended - coordinator.began, summary.uplink_bytes + summary.downlink_bytes)


def _config(store: str | None, secret: Path) -> Config:
    words: Mapping[str, Any] = {
        "federation.name": FEDERATION,
        "rounds": 1,
        "num-clients": DEVICES,
        "deliver": "none",
        "threshold-mb": 1,
    }
    store_settings = {"object-store.store": store, "object-store.secret": secret} if store else {}
    return load_config("fedavg", [f"{key}={value}" for key, value in {**words, **store_settings}.items()])


@contextlib.contextmanager
def _devices(url: str, folder: Path, names: list[str]) -> Iterator[None]:
    command = [sys.executable, "-m", "tests.benchmarks.light_devices", url, str(folder)]
    with processes() as started:
        for first in range(PROCESSES):
            name = f"devices {first}"
            started.start(name, [*command, *names[first::PROCESSES]], log=folder / f"{name}.log")
        yield
        for process in started.all.values():
            process.wait(timeout=30)


@contextlib.contextmanager
def _store(folder: Path, secret: Path) -> Iterator[str]:
    """Start our own store with the command for users."""
    words = ["object-store", str(folder), "--secret", str(secret), "--port", "0"]
    command = [sys.executable, "-u", "-m", "edge_server.cli.main", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[1]
    finally:
        end_device(process)


def figures(options: Options) -> list[Figure]:
    """Seconds and bytes through the broker of both ways, measured in turn."""
    megabytes = QUICK_MB if options.quick else MODEL_MB
    past_broker, through = [], []
    with tempfile.TemporaryDirectory(prefix="edge-bench-", dir=_files_folder(options)) as directory:
        folder, secret = Path(directory), Path(directory) / "object-store.secret"
        with _store(folder / "store", secret) as address:
            for taken, store in ((through, None), (past_broker, address)):
                with tempfile.TemporaryDirectory(prefix="round-", dir=folder) as round_dir:
                    taken.append(round_trip(Path(round_dir), megabytes * 10**6, store=store, secret=secret))
    return _as_figures(megabytes, past_broker, through)


def _files_folder(options: Options) -> Path | None:
    """The folder in memory, if enough is free."""
    free = [shutil.disk_usage(MEMORY).free] if MEMORY.is_dir() else []
    with contextlib.suppress(OSError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        free += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    return MEMORY if len(free) == 2 and min(free) >= ROOM_BYTES else options.folder


def _as_figures(megabytes: int, past_broker: list[Taken], through: list[Taken]) -> list[Figure]:
    what = f"{megabytes} MB to {DEVICES} devices and back"
    pairs = list(zip(past_broker, through, strict=True))
    raw = {"beside": [vars(trip) for trip in past_broker], "through": [vars(trip) for trip in through]}
    return [
        Figure(
            AREA,
            f"{what}: time past the broker over time through it",
            "x",
            tuple(past.seconds / chunks.seconds for past, chunks in pairs),
            target=1.0,
            detail="HTTP object store against 256 kB chunks over MQTT, whole rounds in turn",
            reason="on loopback both ways are limited by the same cores and memory",
            raw=raw,
        ),
        Figure(AREA, "  past the broker", "s", tuple(trip.seconds for trip in past_broker)),
        Figure(AREA, "  through it", "s", tuple(trip.seconds for trip in through)),
        Figure(
            AREA,
            "  bytes through the broker, past it over through it",
            "x",
            tuple(past.broker_bytes / chunks.broker_bytes for past, chunks in pairs),
            target=0.01,
            detail="as the server counts them, control messages included, both ways",
        ),
        Figure(AREA, "  MB through the broker", "MB", tuple(trip.broker_bytes / 1e6 for trip in past_broker)),
    ]
