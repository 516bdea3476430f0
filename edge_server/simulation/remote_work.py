"""A worker without access to the run folder: a job brings its files, and its outcome the files it wrote.

No file stays on the worker's machine between two jobs.
"""

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge_server.simulation.client_work import ClientWork, WorkSetup
from edge_server.simulation.engine import ClientJob, Outcome

Bytes = NDArray[np.uint8]
"""A file's content as an array [bytes], which object stores share without copying it."""

Files = Mapping[str, Bytes]
"""Files by name: `blobs/` or `clients/`, then the path below that folder of the set-up."""


@dataclass(frozen=True, eq=False)
class RemoteOutcome:
    """The outcome of a job, and the files that it has written."""

    outcome: Outcome
    files: Files


class TravellingWork:
    """The jobs of one worker process, in a folder of its own below `parent`."""

    def __init__(self, setup: WorkSetup, parent: str | None = None) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="edge-worker-", dir=parent))
        self._parts = (self._root / "blobs", self._root / "clients")
        blobs, clients = self._parts
        self._work = ClientWork(replace(setup, blobs=blobs, clients=clients))
        shutil.rmtree(self._root)

    def do(self, job: ClientJob, brought: Files) -> RemoteOutcome:
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
    setup: WorkSetup, parent: str | None, job: ClientJob, names: tuple[str, ...], *contents: Bytes
) -> RemoteOutcome:
    global _bench
    if _bench is None:
        _bench = TravellingWork(setup, parent)
    return _bench.do(job, dict(zip(names, contents, strict=True)))
