"""The engine of a Ray cluster: every job is a Ray task, its files travel through Ray's object store.

No other machine needs the run folder: the data and each round's blobs enter the store once, a device's
private state travels with its job, and the files that a job writes come back and are written here. Ray
repeats a job whose worker dies; the outcome is the same.

Ray pickles functions, arguments and results (cloudpickle), so every process of a cluster, and everyone who
may submit jobs, can run code in all the others, including this one. A cluster started here therefore listens
on loopback only and requires a random token; join only a cluster that you trust. Only simulations use Ray:
no device of a real federation reaches it.
"""

import math
import shutil
import signal
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import ray
from numpy.typing import NDArray
from ray.exceptions import RayError

from edge_client.storage.atomic_files import write_synced
from edge_client.storage.blob_store import BlobStore
from edge_server.simulation import client_work, population
from schemas.errors import ConfigError
from schemas.messages import decode_task

Bytes = NDArray[np.uint8]
"""A file's content as an array [bytes], which object stores share without copying it."""

Files = Mapping[str, Bytes]
"""Files by name: `blobs/` or `clients/`, then the path below that folder of the set-up."""

Reference = Any  # An object in Ray's store


@dataclass(frozen=True, eq=False)
class RemoteOutcome:
    """The outcome of a job, and the files that it has written."""

    outcome: client_work.Outcome
    files: Files


class TravellingWork:
    """The jobs of one worker process, in a folder of its own below `parent`; no file outlives a job."""

    def __init__(self, setup: client_work.WorkSetup, parent: str | None = None) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="edge-worker-", dir=parent))
        self._parts = (self._root / "blobs", self._root / "clients")
        blobs, clients = self._parts
        self._work = client_work.ClientWork(replace(setup, blobs=blobs, clients=clients))
        shutil.rmtree(self._root)

    def do(self, job: client_work.ClientJob, brought: Files) -> RemoteOutcome:
        """Write the files brought, do the job, read the new files, and remove all of them."""
        self._root.mkdir(mode=0o700)
        try:
            for name, content in brought.items():
                path = self._root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content.data)
            outcome = self._work.do(job)
            return RemoteOutcome(outcome, self._written(brought))
        finally:
            shutil.rmtree(self._root, ignore_errors=True)

    def _written(self, brought: Files) -> Files:
        paths = [path for part in self._parts for path in sorted(part.rglob("*")) if path.is_file()]
        names = {path.relative_to(self._root).as_posix(): path for path in paths}
        return {name: read_bytes(path) for name, path in names.items() if name not in brought}


def read_bytes(path: Path) -> Bytes:
    return np.fromfile(path, dtype=np.uint8)


_bench: TravellingWork | None = None


def work(
    setup: client_work.WorkSetup,
    parent: str | None,
    job: client_work.ClientJob,
    names: tuple[str, ...],
    *contents: Bytes,
) -> RemoteOutcome:
    global _bench
    if _bench is None:
        _bench = TravellingWork(setup, parent)
    return _bench.do(job, dict(zip(names, contents, strict=True)))


@dataclass(frozen=True)
class Cluster:
    """A connected cluster: its number of simultaneous jobs; the workers' folder, None for the default."""

    workers: int
    folder: str | None
    leave: Callable[[], None]


def begun_cluster(workers: int) -> Cluster:
    """A cluster of this machine alone, without dashboard or logs; `leave` ends it and removes its files."""
    # The paths of the sockets that Ray creates in it must be short.
    folder = tempfile.TemporaryDirectory(prefix="edge-ray-", dir="/tmp", ignore_cleanup_errors=True)
    before = signal.getsignal(signal.SIGTERM)

    def leave() -> None:
        ray.shutdown()
        # Ray replaced the handler.
        signal.signal(signal.SIGTERM, before)
        folder.cleanup()

    try:
        _init(address="local", num_cpus=workers, include_dashboard=False, _temp_dir=folder.name)
    except BaseException:
        leave()
        raise
    return Cluster(workers, folder.name, leave)


def joined_cluster(address: str, workers: int | None) -> Cluster:
    """The cluster at `address`, of which this machine is a node; it stays when the simulation ends."""
    _init(address=address)
    cpus = int(ray.cluster_resources().get("CPU", 0))
    return Cluster(workers or max(cpus, 1), None, ray.shutdown)


def _init(**options: Any) -> None:
    if ray.is_initialized():
        raise ConfigError(
            "this process uses Ray already", key="[simulation] engine", remedy="call ray.shutdown() first"
        )
    try:
        ray.init(log_to_driver=False, configure_logging=False, **options)
    except (OSError, RuntimeError, ValueError, RayError) as error:
        reason = str(error.__cause__ or error).strip().partition("\n")[0]
        raise ConfigError(
            f"no Ray at '{options['address']}': {reason}; for a cluster that requires a token, "
            "set RAY_AUTH_MODE=token",
            key="[simulation] engine",
        ) from error


@dataclass(eq=False)
class RayJob:
    """A submitted job and, once it has ended, its outcome."""

    job: client_work.ClientJob
    outcome: client_work.Outcome | None = None
    dropped: bool = False


class RayEngine(client_work.Engine[RayJob]):
    """Runs one task per worker; other jobs wait here, so that Ray need not hold their files."""

    def __init__(self, setup: client_work.WorkSetup, cluster: Cluster) -> None:
        self._setup, self._cluster = setup, cluster
        self._waiting: deque[RayJob] = deque()
        self._running: dict[Reference, RayJob] = {}
        self._blobs = RoundBlobs(BlobStore(setup.blobs, durable=False))
        try:
            self._work = ray.remote(**_needs(setup, cluster.workers))(work)
            # With the arrays themselves, for workers without access to the files.
            data = setup.data.open_shares() if isinstance(setup.data, population.SharedData) else setup.data
            self._carried = ray.put(replace(setup, data=data))
        except BaseException:
            cluster.leave()
            raise

    def submit(self, job: client_work.ClientJob) -> RayJob:
        handle = RayJob(job)
        self._waiting.append(handle)
        self._launch()
        return handle

    def result(self, handle: RayJob, *, timeout_s: float) -> client_work.Outcome | None:
        """Wait for a job, and collect others that end meanwhile; `EngineError` if Ray could not do one."""
        if handle.dropped:
            raise client_work.EngineError("the outcome of a cancelled job was requested")
        until = time.monotonic() + timeout_s
        while handle.outcome is None:
            if not self._collect(max(0.0, until - time.monotonic())):
                return None
        return handle.outcome

    def cancel(self, handle: RayJob) -> None:
        """Drop a job that has not begun; the outcome of a running one is ignored."""
        handle.dropped = True
        if handle in self._waiting:
            self._waiting.remove(handle)

    def stop(self) -> None:
        """Nothing: jobs that run hold nobody up."""

    def close(self) -> None:
        """Leave the cluster, which drops running jobs; end it if it was started here."""
        self._waiting.clear()
        self._running.clear()
        self._cluster.leave()

    def _launch(self) -> None:
        while self._waiting and len(self._running) < self._cluster.workers:
            handle = self._waiting.popleft()
            files = self._files(handle.job)
            task = self._work.remote(
                self._carried, self._cluster.folder, handle.job, tuple(files), *files.values()
            )
            self._running[task] = handle

    def _files(self, job: client_work.ClientJob) -> dict[str, Any]:
        """The job's files: blobs of the store, and the device's private state."""
        task = decode_task(job.task)
        digests = [ref.digest for ref in task.blobs.values()]
        files: dict[str, Any] = {f"blobs/{digest}": self._blobs.get(digest, task.round) for digest in digests}
        clients = self._setup.clients
        kept = client_work.private_state(clients, job.device).find_file(task.run, task.round)
        if kept is not None:
            files[f"clients/{kept.relative_to(clients).as_posix()}"] = read_bytes(kept)
        return files

    def _collect(self, timeout_s: float) -> bool:
        """Collect the jobs that have ended, and start the next; False if none ends in time."""
        ended, _ = ray.wait(list(self._running), timeout=timeout_s)
        for task in ended:
            handle = self._running.pop(task)
            if not handle.dropped:
                handle.outcome = self._outcome(handle.job, task)
        self._launch()
        return bool(ended)

    def _outcome(self, job: client_work.ClientJob, task: Reference) -> client_work.Outcome:
        try:
            done: RemoteOutcome = ray.get(task)
        except RayError as error:
            # Ray's message contains a whole traceback.
            reason = str(error).strip().rpartition("\n")[2]
            raise client_work.EngineError(f"Ray could not do the work of {job.device}: {reason}") from error
        self._write(done.files)
        return done.outcome

    def _write(self, files: Files) -> None:
        folders: dict[str, Path] = {"blobs": self._setup.blobs, "clients": self._setup.clients}
        for name, content in files.items():
            part, _, rest = name.partition("/")
            write_synced(folders[part] / rest, content.tobytes(), durable=False)


class RoundBlobs:
    """Blobs in Ray's store: each is put once, and released after a round without it."""

    def __init__(self, source: BlobStore) -> None:
        self._source, self._round = source, 0
        self._now: dict[str, Reference] = {}
        self._before: dict[str, Reference] = {}

    def get(self, digest: str, round_number: int) -> Reference:
        if round_number != self._round:
            self._round, self._before, self._now = round_number, self._now, {}
        if digest not in self._now:
            self._now[digest] = self._before.get(digest) or ray.put(
                read_bytes(self._source.blob_path(digest))
            )
        return self._now[digest]


def _needs(setup: client_work.WorkSetup, workers: int) -> dict[str, float]:
    if setup.accelerator == "cpu":
        return {"num_cpus": 1}
    gpus = int(ray.cluster_resources().get("GPU", 0))
    if gpus == 0:
        raise ConfigError(
            "no machine of the Ray cluster has a GPU", key="[simulation] device", remedy="use 'cpu'"
        )
    return {"num_cpus": 1, "num_gpus": 1 / math.ceil(workers / gpus)}
