"""The server's state machine, coordinator and disk with two devices, without network, processes and clock.

Updates are trained once and cached, so a run that is repeated with a crash at each write trains only once.
"""

import shutil
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from edge_client.agent.settings import TaskContext
from edge_client.agent.task_runner import do_training
from edge_client.data.local import LocalData
from edge_client.data.partition import holdout
from edge_client.data.sources import load_source
from edge_client.storage.blob_store import BlobStore
from edge_client.storage.private_state import PrivateState
from edge_server.config.config import Config
from edge_server.coordinator.coordinator import assemble
from edge_server.coordinator.round_record import closed_event
from edge_server.coordinator.round_rules import make_rules
from edge_server.coordinator.run_start import open_run
from edge_server.rounds import events
from edge_server.rounds import machine as rounds
from edge_server.rounds.machine import Federation
from edge_server.storage.records import Summary
from schemas.base import fields_of
from schemas.messages import Birth, BlobRequest, DeliverTask, Delivery, Task, TrainTask, Update
from schemas.tensors.chunks import NO_CHUNKS, decode_chunk, digest_of
from schemas.values import CapabilityProfile, DataCard, DeliveryMetrics

FEDERATION, RUN = "single", "single-1"
TIERS = {"weak": 1, "strong": 5}
CARD = DataCard(source="digits", examples=24, input_shape=(1, 8, 8), num_classes=10)
MEASURED = DeliveryMetrics(
    parameters=1, macs=1, onnx_bytes=1, onnx_sha256="0" * 64, examples=1, max_difference=0, latency_ms=1
)


@dataclass
class Device:
    """A device that never crashes; acknowledged updates must never be lost."""

    name: str
    store: BlobStore
    place: TaskContext
    answers: dict[str, tuple[Update, bytes]] = field(default_factory=dict)
    claimed: Update | None = None
    acknowledged: set[str] = field(default_factory=set)

    def answer(self, task: Task, server: BlobStore) -> Update:
        """The update of the task, from the cache if this task was trained before."""
        key = task.model_copy(update={"attempt": 1, "deadline_s": None}).model_dump_json()
        if key not in self.answers:
            for ref in task.blobs.values():
                shutil.copy(server.blob_path(ref.digest), self.store.blob_path(ref.digest))
            update = do_training(task, self.place, on_epoch=lambda _: None, should_stop=lambda: False)
            self.answers[key] = update, self.store.blob_path(update.blob.digest).read_bytes()
        update, data = self.answers[key]
        self.store.put_blob(data)
        return update.model_copy(update={"run": task.run, "attempt": task.attempt})


def make_devices(folder: Path) -> dict[str, Device]:
    """Two devices of different tiers with the same few examples."""
    train, held_out = holdout(load_source("digits").subset(range(30)), seed=0)
    devices = {}
    for name in TIERS:
        store = BlobStore(folder / name / "blobs", durable=False)
        private = PrivateState(folder / name / "private", durable=False)
        local = LocalData(train, held_out)
        place = TaskContext(name, store, local, folder / name / "models", private=private)
        devices[name] = Device(name, store, place)
    return devices


class SingleProcessServer:
    """The server from one start to the end of the run, or to a crash."""

    def __init__(self, folder: Path, config: Config, devices: dict[str, Device]) -> None:
        self.devices, self.now = devices, 0.0
        self.folder, recovered = open_run(folder, config, make_rules(config), now=0.0)
        self.coordinator = assemble(
            config, RUN, self.folder, resume=recovered.resumption if recovered else None
        )
        self.federation = (
            recovered.federation if recovered else Federation(FEDERATION, RUN, make_rules(config))
        )
        self.federation = self.coordinator.repair.repair_all(self.federation)
        self.found = self.coordinator.storage.store.parts()
        self.todo: deque[Callable[[], None]] = deque()
        self.outcome: str | None = None

    def run(self) -> str:
        """Continue until the run ends; returns its outcome."""
        self._step(events.Started())
        for number, (name, tier) in enumerate(TIERS.items()):
            birth = Birth(
                federation=FEDERATION,
                device=name,
                session=number + 1,
                profile=CapabilityProfile(tier=tier),
                data=CARD,
            )
            self._step(events.MessageReceived(birth))
        while self.outcome is None:
            if self.todo:
                self.todo.popleft()()
            else:
                self._wait()
        self.coordinator.finish(_summary(self.outcome))
        return self.outcome

    def _wait(self) -> None:
        self.now += 1.0
        assert self.now < 1000, f"no progress: {self.federation.phase}"
        self._step(events.Tick())

    def _step(self, event: events.Event) -> None:
        self.federation, commands = rounds.step(self.federation, event, self.now)
        for command in commands:
            # A job of the coordinator uses the task at the time of queueing.
            if isinstance(command, events.CheckUpdate):
                task = self.federation.participants[command.device].assignment.task
                self.todo.append(partial(self._check, command, task))
            else:
                self.todo.append(partial(self._do, command))

    def _check(self, command: events.CheckUpdate, task: Task) -> None:
        self._step(self.coordinator.checker.check(command, task, self.coordinator.model.state))

    def _do(self, command: events.Command) -> None:
        match command:
            case events.Send(device, message):
                self._deliver(self.devices[device], message)
            case events.PlanRound():
                self._step(self.coordinator.planner.plan(command))
            case events.CloseRound():
                self._step(closed_event(self.coordinator.aggregator.close(command)))
                self.todo.append(self.coordinator.recorder.record_round)
            case events.RollBack():
                self._step(self.coordinator.rollback.undo(command))
            case events.WriteUpdateChunk(_, chunk):
                self.coordinator.storage.store.write_chunk(chunk.ref, chunk.index, chunk.data)
            case events.RecordDelivery(delivery):
                self.coordinator.storage.journal.write_delivery(delivery)
            case events.EndRun(outcome):
                self.outcome = outcome
            case events.Announce() | events.SendChunks() | events.Note():
                pass

    def _deliver(self, device: Device, message: object) -> None:
        match message:
            case TrainTask():
                device.claimed = device.answer(message, self.coordinator.storage.store)
                have = NO_CHUNKS
                if device.claimed.blob.digest in self.found:
                    have = self.coordinator.storage.store.present(device.claimed.blob)
                self._step(events.MessageReceived(device.claimed, have))
            case DeliverTask():
                self._step(events.MessageReceived(_delivery(message, device.name)))
            case BlobRequest(digest=digest, first=first, count=count):
                assert device.claimed is not None
                assert device.claimed.blob.digest == digest
                for index in range(first, first + count):
                    frame = device.store.read_frame(device.claimed.blob, index)
                    self._step(events.ChunkReceived(device.name, decode_chunk(frame)))
            case _ if getattr(message, "kind", "") == "acknowledgement":
                digest = getattr(message, "digest", None)
                device.acknowledged |= {digest} if digest else set()


def _delivery(task: Task, device: str) -> Delivery:
    about = fields_of(task, "federation", "run", "round", "attempt")
    return Delivery(**about, device=device, metrics=MEASURED)


def _summary(outcome: str) -> Summary:
    return Summary(
        federation=FEDERATION,
        run=RUN,
        recipe=None,
        outcome=outcome,
        rounds=0,
        duration_s=0,
        model="two-nn",
        parameters=0,
    )


def final_model(folder: Path, round_number: int) -> str:
    """The digest of the model after a round."""
    state = folder / "models" / f"round-{round_number:04d}" / "state.safetensors"
    return digest_of(state.read_bytes())
