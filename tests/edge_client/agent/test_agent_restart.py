"""An agent resumes from the state folder of a killed one; the network is faked, the disk is real."""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_client.agent import agent as module
from edge_client.agent import assembly, session_runner
from edge_client.agent.agent import Agent, AgentSettings
from edge_client.agent.session.events import Tick, WorkDone
from edge_client.agent.session.machine import Session, SessionPhase
from edge_client.agent.worker import DataChanged, Housekeeping
from edge_client.data.local import LocalData
from edge_client.data.sources import load_source
from edge_client.storage.blob_store import BlobStore
from edge_client.storage.private_state import PrivateState
from edge_client.training.checkpoints import EpochCheckpoints
from edge_client.transport import event_loop
from edge_client.transport.broker_link import Arrived, BrokerAddress, LinkUp
from edge_client.transport.chunk_transfer import MAX_PATIENCE_S
from schemas.errors import Reason
from schemas.messages import (
    Acknowledgement,
    Birth,
    BlobRequest,
    Message,
    Task,
    TaskReply,
    Update,
    decode_message,
    encode_message,
)
from schemas.tensors.chunks import encode_chunk
from schemas.topics import Channel, DeviceTopic
from schemas.values import CapabilityProfile
from tests.chunk_bits import chunks_of
from tests.edge_client.agent.session.by_hand import (
    CHUNK,
    DEVICE,
    FEDERATION,
    RESULT,
    RESULT_DATA,
    RUN,
    STATE,
    STATE_DATA,
    task,
    update,
)
from tests.slow import slow

DIGITS = load_source("digits").subset(range(10))
GROUPS = {"own-control": {"w": np.ones(3, np.float32)}}


class StillLink:
    """Fake link that records published messages and sent chunks."""

    def __init__(self, address: BrokerAddress, inbox: Any, **more: Any) -> None:
        self.first_session = more["first_session"]
        self.published: list[Message] = []
        self.chunks: list[int] = []

    def publish(self, topic: str, payload: bytes, **more: Any) -> None:
        self.published.append(decode_message(payload))

    def send_chunk(self, key: Any, topic: str, read: Callable[[], bytes]) -> None:
        assert read()
        self.chunks.append(key[1])

    def listen(self, topics: frozenset[str]) -> None:
        pass

    def fit(self, chunk_bytes: int) -> None:
        pass

    def handle(self, event: Any) -> None:
        pass


class StillWorker:
    """Fake worker that records its calls."""

    def __init__(self, inbox: Any, make: Any = None) -> None:
        self.started: list[Task] = []
        self.stopped = self.warmed_up = 0

    def warm_up(self) -> None:
        self.warmed_up += 1

    def start(self, task: Task, place: Any) -> None:
        self.started.append(task)

    def note_training(self, place: Any, received_loss: Any) -> None:
        """Its data does not change."""

    def stop(self, **more: Any) -> None:
        self.stopped += 1


class Life:
    """One process of the device, from its start until it is killed."""

    def __init__(self, state: Path, *, connected: bool = True) -> None:
        settings = AgentSettings(
            FEDERATION, DEVICE, BrokerAddress("nowhere", 1), state, "digits", CapabilityProfile()
        )
        self.agent = Agent(settings, LocalData(DIGITS, DIGITS))
        if connected:
            self.hand(LinkUp(self.link.first_session, None))

    @property
    def link(self) -> Any:
        return self.agent.link

    @property
    def started(self) -> list[Task]:
        worker: Any = self.agent.runner.worker
        return worker.started

    @property
    def phase(self) -> SessionPhase:
        return self.session.phase

    @property
    def session(self) -> Session:
        return self.agent.runner.session

    @property
    def blobs(self) -> BlobStore:
        return self.agent.runner.state_store.blobs

    def hand(self, *events: Any) -> None:
        for event in events:
            self.agent.inbox.put(event)
            self.agent.loop.turn()

    def hear(self, *messages: Message) -> None:
        topic = str(DeviceTopic(FEDERATION, DEVICE, Channel.DOWN))
        self.hand(*(Arrived(topic, encode_message(message)) for message in messages))

    def receive(self, *indices: int) -> None:
        topic = str(DeviceTopic(FEDERATION, DEVICE, Channel.DOWN_BLOB))
        pieces = {index: STATE_DATA[index * CHUNK : (index + 1) * CHUNK] for index in indices}
        self.hand(*(Arrived(topic, encode_chunk(STATE.digest, n, piece)) for n, piece in pieces.items()))

    def published(self, kind: type) -> list[Any]:
        return [message for message in self.link.published if isinstance(message, kind)]


@pytest.fixture(autouse=True)
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "Link", StillLink)
    monkeypatch.setattr(assembly, "Worker", StillWorker)


def finish(life: Life, state: Path) -> None:
    """Finish the device's work with an update and a proposed private state."""
    BlobStore(state / "blobs").put_blob(RESULT_DATA, chunk_bytes=CHUNK)
    PrivateState(state / "private").propose(RUN, 1, 1, GROUPS)
    life.hand(WorkDone(update()))


def acknowledgement() -> Acknowledgement:
    return Acknowledgement(federation=FEDERATION, device=DEVICE, run=RUN, attempt=1, digest=RESULT.digest)


def test_a_device_killed_while_fetching_requests_the_missing_chunks(tmp_path):
    first = Life(tmp_path)
    first.hear(task())
    first.receive(1)
    second = Life(tmp_path)
    assert second.phase is SessionPhase.FETCHING
    assert [(request.first, request.count) for request in second.published(BlobRequest)] == [(0, 1), (2, 1)]
    second.hear(task(deadline_s=100.0))
    assert len(second.published(BlobRequest)) == 2
    second.receive(0, 2)
    assert second.started == [task()]


def test_a_device_killed_while_working_restarts_the_work(tmp_path):
    first = Life(tmp_path)
    first.hear(task())
    first.receive(0, 1, 2)
    assert first.started == [task()]
    second = Life(tmp_path)
    assert second.started == [task()]
    assert second.published(BlobRequest) == []


def test_a_task_that_kills_each_process_is_declined_by_the_third(tmp_path):
    first = Life(tmp_path)
    first.hear(task())
    first.receive(0, 1, 2)
    assert Life(tmp_path).started == [task()]
    third = Life(tmp_path)
    assert (third.started, third.phase) == ([], SessionPhase.IDLE)
    (reply,) = third.published(TaskReply)
    assert (reply.accepted, reply.reason) == (False, Reason.NO_MEMORY)
    third.hear(task())
    assert third.published(TaskReply) == [reply, reply]
    assert Life(tmp_path).started == []


def test_a_task_whose_process_is_stopped_by_its_owner_is_begun_again(tmp_path):
    life = Life(tmp_path)
    life.hear(task())
    life.receive(0, 1, 2)
    for _ in range(3):
        assert life.started == [task()]
        life.agent.stop()
        life.agent.loop.turn()
        assert life.agent.is_over
        life = Life(tmp_path)
    assert life.started == [task()]


def test_a_device_killed_while_uploading_sends_missing_chunks_and_keeps_its_private_state(tmp_path):
    first = Life(tmp_path)
    first.hear(task())
    first.receive(0, 1, 2)
    finish(first, tmp_path)
    second = Life(tmp_path)
    assert second.started == []
    assert second.published(Update) == [update()]
    second.hear(
        task(), BlobRequest(federation=FEDERATION, device=DEVICE, digest=RESULT.digest, first=1, count=2)
    )
    assert second.link.chunks == [1, 2]
    assert second.published(Birth)[0].session > first.published(Birth)[0].session
    assert second.published(Birth)[0].device == DEVICE
    second.hear(acknowledgement())
    assert (PrivateState(tmp_path / "private").load_groups(RUN, 2)["own-control"]["w"] == 1).all()
    third = Life(tmp_path)
    assert (third.phase, third.published(Update), third.started) == (SessionPhase.IDLE, [], [])


def test_blobs_lost_in_a_power_cut_are_fetched_or_computed_again(tmp_path):
    first = Life(tmp_path)
    first.hear(task())
    first.receive(0, 1, 2)
    finish(first, tmp_path)
    BlobStore(tmp_path / "blobs").blob_path(RESULT.digest).write_bytes(bytes(len(RESULT_DATA)))
    second = Life(tmp_path)
    assert (second.started, second.published(Update)) == ([task()], [])
    BlobStore(tmp_path / "blobs").blob_path(STATE.digest).write_bytes(b"")
    third = Life(tmp_path)
    assert third.phase is SessionPhase.FETCHING
    assert [(request.first, request.count) for request in third.published(BlobRequest)] == [(0, 3)]


def test_a_device_killed_again_before_connecting_loses_nothing(tmp_path):
    first = Life(tmp_path)
    first.hear(task())
    first.receive(0, 1, 2)
    finish(first, tmp_path)
    second = Life(tmp_path, connected=False)
    second.agent.runner.step(Tick())
    assert Life(tmp_path).published(Update) == [update()]


def test_files_of_older_tasks_are_removed_at_startup_and_cached_blobs_stay(tmp_path):
    first = Life(tmp_path)
    first.hear(task())
    first.receive(0)
    store, epochs = BlobStore(tmp_path / "blobs"), EpochCheckpoints(tmp_path / "epochs", interval_s=0)
    cached = store.put_blob(b"a channel map")
    store.write_chunk(RESULT, 0, RESULT_DATA[:CHUNK])
    older = task(attempt=7)
    for saved in (task(), older):
        epochs.of(saved, examples=1).save(dict)
    (tmp_path / "models").mkdir()
    left = tmp_path / "models" / ".model.onnx.4711.part"
    left.write_bytes(b"half a model")
    Life(tmp_path)
    assert cached.digest in store
    assert (store.present(STATE), store.present(RESULT)) == (chunks_of(0b001), chunks_of(0))
    assert (epochs.of(task(), examples=1).load_values(), epochs.of(older, examples=1).load_values()) == (
        {},
        None,
    )
    assert not left.exists()


def test_a_checkpoint_is_removed_with_its_task(tmp_path):
    life = Life(tmp_path)
    life.hear(task())
    life.receive(0, 1, 2)
    epochs = EpochCheckpoints(tmp_path / "epochs", interval_s=0)
    epochs.of(task(), examples=1).save(dict)
    life.hear(task(2))
    assert list((tmp_path / "epochs").iterdir()) == []


def test_a_late_answer_does_not_disturb_current_work(tmp_path):
    life = Life(tmp_path)
    life.hear(task())
    life.receive(0, 1, 2)
    finish(life, tmp_path)
    life.hear(task(2))
    assert life.phase is SessionPhase.WORKING
    made = BlobStore(tmp_path / "blobs").put_blob(b"what the worker has just made")
    life.hear(acknowledgement())
    assert (PrivateState(tmp_path / "private").load_groups(RUN, 2)["own-control"]["w"] == 1).all()
    assert made.digest in life.blobs


# --- full and failing disks ---
class FullDisk:
    """Every chunk write fails until `has_space` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.has_space, self._whole = False, BlobStore.write_chunk
        monkeypatch.setattr(BlobStore, "write_chunk", self.write_chunk(self))

    @staticmethod
    def write_chunk(disk: FullDisk) -> Callable[..., None]:
        def write(store: BlobStore, *chunk: Any) -> None:
            if not disk.has_space:
                raise OSError(28, "No space left on device")
            disk._whole(store, *chunk)

        return write


def test_fetching_waits_for_disk_space(tmp_path, monkeypatch, caplog):
    now = [1000.0]
    clock = types.SimpleNamespace(monotonic=lambda: now[0], time=lambda: 1e9)
    for edge in (module, session_runner, event_loop):
        monkeypatch.setattr(edge, "time", clock)
    life = Life(tmp_path)
    cached = life.blobs.put_blob(b"of an older task")
    life.hear(task())
    life.receive(0)
    disk = FullDisk(monkeypatch)
    life.receive(1, 2)
    assert life.phase is SessionPhase.FETCHING
    assert "No space left" in caplog.text
    assert cached.digest not in life.blobs
    disk.has_space = True
    before = len(life.published(BlobRequest))
    now[0] += MAX_PATIENCE_S + 1
    life.hand(object())
    assert [(request.first, request.count) for request in life.published(BlobRequest)[before:]] == [(1, 2)]
    life.receive(1, 2)
    assert life.started == [task()]


def test_a_blob_whose_verification_failed_on_disk_is_verified_again(tmp_path, monkeypatch):
    life = Life(tmp_path)
    life.hear(task())
    life.receive(0, 1)
    with monkeypatch.context() as failing:

        def broken(*args: Any) -> bool:
            raise OSError(5, "Input/output error")

        failing.setattr(BlobStore, "verify", broken)
        life.receive(2)
    assert life.phase is SessionPhase.FETCHING
    life.receive(2)
    assert life.started == [task()]


def test_disk_errors_do_not_end_the_agent(tmp_path, monkeypatch, caplog):
    life = Life(tmp_path)
    life.hear(task())
    life.receive(0, 1, 2)
    finish(life, tmp_path)
    life.blobs.put_blob(b"of an older task")

    def read_only(*args: Any, **more: Any) -> None:
        raise OSError(30, "Read-only file system")

    for method in ("write_bytes", "unlink", "replace"):
        monkeypatch.setattr(Path, method, read_only)
    life.hear(acknowledgement())
    life.hand(LinkUp(life.link.first_session + 1, None))
    assert life.phase is SessionPhase.IDLE
    assert caplog.text.count("Read-only file system") >= 4


def test_a_result_that_is_stored_as_soon_as_work_starts_is_kept(tmp_path, monkeypatch):
    life = Life(tmp_path)
    life.hear(task())
    life.receive(0, 1, 2)
    older = life.blobs.put_blob(b"of an older task")
    worker, start = life.agent.runner.worker, life.agent.runner.worker.start

    def quick(*given: Any) -> None:
        start(*given)
        BlobStore(tmp_path / "blobs").put_blob(RESULT_DATA, chunk_bytes=CHUNK)

    monkeypatch.setattr(worker, "start", quick)
    # Its blobs are here already, so work starts with the offer, which makes room on the disk.
    life.hear(task(2))
    assert life.started == [task(), task(2)]
    assert RESULT.digest in life.blobs
    assert older.digest not in life.blobs


# --- killed at any time ---
class Killed(BaseException):
    """The process was killed."""


def play(state: Path, instants: list[int]) -> Life:
    """Run a device against a server that answers all its messages, and kill it once per entry of `instants`.

    Each entry is the number of commands that a process executes before it is killed. Returns the last
    process, in which the server has confirmed the update.
    """
    counted: list[Update] = []
    for instant in [*instants, None]:
        life = Life(state, connected=False)
        do, left = life.agent.runner.execute, [instant]

        def until_killed(command: Any, do: Any = do, left: list[int | None] = left) -> None:
            if left[0] == 0:
                raise Killed
            left[0] = None if left[0] is None else left[0] - 1
            do(command)

        life.agent.runner.execute = until_killed  # type: ignore[method-assign]
        try:
            serve(life, state, counted)
        except Killed:
            continue
        break
    return life


def serve(life: Life, state: Path, counted: list[Update]) -> None:
    """Offer the task until an update is `counted`, and confirm that update each time it is sent."""
    life.hand(LinkUp(life.link.first_session, None))
    if not counted:
        life.hear(task())
        life.receive(0, 1, 2)
        if life.phase is SessionPhase.WORKING:
            finish(life, state)
        counted += life.published(Update)
    if life.published(Update):
        life.hear(acknowledgement())


SECOND = (0, 3, 5, 8)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (first, second) if second == SECOND[first % 4] else slow(first, second)
        for first in range(12)
        for second in SECOND
    ],
)
def test_a_round_is_counted_exactly_once_whenever_the_device_is_killed(tmp_path, first, second):
    last = play(tmp_path, [first, second])
    assert (last.phase, last.session.snapshot.task) == (SessionPhase.IDLE, None)
    private = PrivateState(tmp_path / "private")
    assert (private.load_groups(RUN, 2)["own-control"]["w"] == 1).all()
    assert not list((tmp_path / "private" / RUN).glob("*.proposed"))
    after = Life(tmp_path)
    assert (after.phase, after.published(Update), after.started) == (SessionPhase.IDLE, [], [])


def test_a_device_imports_torch_once_and_only_after_an_idle_period(tmp_path):
    life = Life(tmp_path)
    worker: Any = life.agent.runner.worker
    (chores,) = [service for service in life.agent.services if isinstance(service, Housekeeping)]
    due = chores.warm_up_at
    chores.tick(due - 1.0, life.session)
    assert worker.warmed_up == 0
    chores.tick(due, life.session)
    chores.tick(due + 1.0, life.session)
    assert worker.warmed_up == 1


def test_the_birth_is_updated_when_the_data_changes(tmp_path: Path) -> None:
    life = Life(tmp_path)
    assert [birth.data.examples for birth in life.published(Birth)] == [10]
    life.hand(DataChanged(LocalData(DIGITS.subset(range(7)), DIGITS)))
    assert [birth.data.examples for birth in life.published(Birth)] == [10, 7]
    assert len({birth.session for birth in life.published(Birth)}) == 1
    assert len(life.agent.runner.context.data.train) == 7


def test_data_smaller_than_a_batch_causes_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    life = Life(tmp_path)
    life.hear(task())
    life.receive(*range(STATE.chunks))
    life.hear(task(2))
    warnings = [line for line in caplog.messages if "fewer than a batch" in line]
    assert warnings == ["trained on 10 examples, fewer than a batch of 32: a step takes them all"]
    assert len(life.started) == 2


def test_mirror_images_fill_a_batch() -> None:
    data, asked = LocalData(DIGITS.subset(range(10)), DIGITS), task()
    mirrored = asked.training.model_copy(update={"mirror": ("left-right", "up-down")})
    assert data.fewer_than_a_batch(asked)
    assert not data.fewer_than_a_batch(asked.model_copy(update={"training": mirrored}))
