"""A full disk: the task fails with its reason, and existing files stay intact."""

import errno
import queue
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edge_client.agent.session.events import WorkFailed
from edge_client.agent.settings import TaskContext
from edge_client.agent.worker import Progress, Worker
from edge_client.data.local import LocalData
from edge_client.data.sources import load_source
from edge_client.models.build import build_model
from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.pruning.surgery import arrays_of
from edge_client.storage.blob_store import BlobStore
from edge_client.storage.private_state import PrivateState
from schemas.errors import Reason
from schemas.messages import DeliverTask, Task, TrainTask
from schemas.strategy import TrainingPlan
from schemas.tensors.chunks import encode_json
from schemas.values import ModelSpec
from tests.groups import encode_groups

SPEC = ModelSpec(name="mlp", input_shape=(1, 8, 8), num_classes=10)


@pytest.fixture
def place(tmp_path: Path) -> TaskContext:
    return place_at(tmp_path)


def place_at(tmp_path: Path) -> TaskContext:
    digits = load_source("digits").subset(range(20))
    return TaskContext(
        "pi",
        BlobStore(tmp_path / "blobs"),
        LocalData(digits, digits),
        tmp_path / "models",
        private=PrivateState(tmp_path / "private"),
    )


def task(place: TaskContext, action: str = "train") -> Task:
    module = build_model(SPEC, seed=1)
    arrays, channels = arrays_of(module), trace_channels(module, SPEC.input_shape)
    blobs = {
        "state": place.store.put_blob(encode_groups({"model": arrays})),
        "channel-map": place.store.put_blob(encode_json(channels)),
    }
    fields = {
        "federation": "home",
        "run": "run-1",
        "round": 1,
        "attempt": 1,
        "tier": 1,
        "ratio": 0,
        "model": SPEC,
        "blobs": blobs,
    }
    if action == "deliver":
        return DeliverTask(**fields)
    return TrainTask(**fields, training=TrainingPlan(objectives=({"name": "scaffold"},)))


def outcome(assigned: Task, place: TaskContext) -> WorkFailed:
    inbox: queue.SimpleQueue = queue.SimpleQueue()
    Worker(inbox).start(assigned, place)
    event = inbox.get(timeout=60)
    while isinstance(event, Progress):
        event = inbox.get(timeout=60)
    assert isinstance(event, WorkFailed)
    return event


def fails(number: int) -> Any:
    def write(*args: Any, **more: Any) -> None:
        raise OSError(number, "No space left on device")

    return write


@pytest.mark.parametrize("where", [(BlobStore, "put_groups"), (PrivateState, "propose")])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_an_update_that_does_not_fit_on_the_disk_fails_its_task(place, monkeypatch, where, number):
    assigned = task(place)
    monkeypatch.setattr(*where, fails(number))
    failed = outcome(assigned, place)
    assert failed.reason is Reason.NO_SPACE
    assert "No space left" in failed.detail


def test_another_disk_error_is_not_reported_as_a_full_disk(place, monkeypatch):
    assigned = task(place)
    monkeypatch.setattr(BlobStore, "put_groups", fails(errno.EIO))
    assert outcome(assigned, place).reason is Reason.TASK_FAILED


def test_an_export_that_does_not_fit_on_the_disk_keeps_the_served_model(place, monkeypatch):
    assigned = task(place, "deliver")
    place.models.mkdir()
    (place.models / "model.onnx").write_bytes(b"the served model")
    monkeypatch.setattr(Path, "write_bytes", fails(errno.ENOSPC))
    assert outcome(assigned, place).reason is Reason.NO_SPACE
    files = [(path.name, path.read_bytes()) for path in place.models.rglob("*") if path.is_file()]
    assert files == [("model.onnx", b"the served model")]


SCRIPT = """
import errno, subprocess, sys
from pathlib import Path
import numpy as np
from edge_client.storage.blob_store import BlobStore
from edge_client.agent.state_store import keep_blob, keep_chunk
from edge_client.storage.private_state import note_session
from edge_client.training.checkpoints import EpochCheckpoint
from edge_client.storage.atomic_files import write_synced
from edge_client.agent.session.snapshot import SessionSnapshot
from edge_client.agent.state_store import SnapshotFile
from edge_client.storage.private_state import PrivateState
from edge_client.agent.session.events import BlobChecked, ChunkLost
from edge_client.transport.chunk_transfer import WriteChunk
from schemas.tensors.chunks import BlobRef, digest_of

root = Path(sys.argv[1])
mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", root], capture_output=True)
if mounted.returncode:
    sys.exit(77)
data = np.random.default_rng(0).bytes(300_000)
ref = BlobRef(digest=digest_of(data), size=len(data), chunk_bytes=100_000)
piece = lambda n: WriteChunk(ref, n, data[n * 100_000 : (n + 1) * 100_000])
store, private = BlobStore(root / "blobs"), PrivateState(root / "private")
memory, epochs = SnapshotFile(root / "task.json"), EpochCheckpoint(root / "epochs", "", interval_s=0)
control = lambda number: {"own-control": {"w": np.full(30_000, number, np.float32)}}

write_synced(root / "model.onnx", b"old" * 1000)
private.propose("run", 1, 1, control(1)); private.commit("run", 1, 1)
epochs.save(lambda: {"epoch": 1})
assert keep_chunk(store, piece(0)) is None
filler = root / "filler"
try:
    with filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
except OSError as error:
    assert error.errno == errno.ENOSPC

assert keep_chunk(store, piece(1)) == ChunkLost(ref.digest, 1)
assert list(store.present(ref)) == [0], store.present(ref)
epochs.save(lambda: {"epoch": np.zeros(30_000)})
note_session(root / "session", 7)
memory.save(SessionSnapshot(federation="home", device="pi", runs=("run",)))
for write in (
    lambda: write_synced(root / "model.onnx", b"new" * 100_000),
    lambda: private.propose("run", 2, 2, control(2)),
    lambda: store.put_blob(data),
):
    try:
        write()
    except OSError as error:
        assert error.errno == errno.ENOSPC
    else:
        raise AssertionError("the disk was not full")
assert (root / "model.onnx").read_bytes() == b"old" * 1000
assert (private.load_groups("run", 2)["own-control"]["w"] == 1).all()
assert epochs.load_values() == {"epoch": 1}
assert not [path for path in root.rglob(".*")], list(root.rglob(".*"))

filler.unlink()
assert [keep_chunk(store, piece(n)) for n in (1, 2)] == [None, None]
assert keep_blob(store, ref) == BlobChecked(ref.digest, True)
print("intact")
"""


def test_a_real_full_disk_damages_nothing(tmp_path):
    command = ["unshare", "--map-root-user", "--mount", sys.executable, "-c", SCRIPT, str(tmp_path)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=Path.cwd())
    except FileNotFoundError:
        pytest.skip("unshare(1) is not available")
    if ended.returncode == 77 or ended.stderr.startswith("unshare:"):
        pytest.skip("mounting a small disk is not permitted")
    assert ended.stdout == "intact\n", ended.stderr
