"""A server and its devices, connected in memory by a network that a test can make unreliable.

Both state machines are the real ones; disk, training and aggregation are replaced by stand-ins.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

from edge_client.agent.session import events as on_device
from edge_client.agent.session import machine as device_side
from edge_client.agent.session.machine import Session
from edge_client.agent.session.snapshot import SessionSnapshot
from edge_client.transport import chunk_transfer
from edge_server.rounds import events as on_server
from edge_server.rounds import machine as rounds
from edge_server.rounds.machine import Federation, Phase, RoundRules
from schemas.base import fields_of
from schemas.errors import Reason
from schemas.messages import Birth, Death, DeliverTask, Delivery, Task, TrainTask, Update
from schemas.tensors.chunks import BlobRef, Chunk, ChunkSet, digest_of
from schemas.values import DataCard, TrainingMetrics
from tests.schemas.examples import plain_metrics, plain_task

FEDERATION, RUN = "home", "run-1"
CHUNK = 1024


@dataclass
class Disk:
    blobs: dict[str, bytes] = field(default_factory=dict)
    parts: dict[str, dict[int, bytes]] = field(default_factory=dict)

    def put(self, data: bytes) -> BlobRef:
        ref = BlobRef(digest=digest_of(data), size=len(data), chunk_bytes=CHUNK)
        self.blobs[ref.digest] = data
        return ref

    def write(self, command: chunk_transfer.WriteChunk) -> None:
        self.parts.setdefault(command.ref.digest, {})[command.index] = command.data

    def keep_only(self, digests: frozenset[str]) -> None:
        self.blobs = {digest: data for digest, data in self.blobs.items() if digest in digests}
        self.parts = {digest: part for digest, part in self.parts.items() if digest in digests}

    def verify(self, ref: BlobRef) -> bool:
        chunks = self.parts.pop(ref.digest)
        data = b"".join(chunks[index] for index in range(ref.chunks))
        if digest_of(data) != ref.digest:
            return False
        self.blobs[ref.digest] = data
        return True

    def chunks(self, ref: BlobRef, first: int, count: int) -> list[Chunk]:
        data = self.blobs[ref.digest]
        return [
            Chunk(ref.digest[:16], index, data[index * CHUNK : (index + 1) * CHUNK])
            for index in range(first, min(first + count, ref.chunks))
        ]


@dataclass
class Node:
    """One device: its session machine, its disk and its current task."""

    session: Session
    disk: Disk
    number: int = 1
    online: bool = True
    work: Task | None = None
    settled: list[on_device.Settled] = field(default_factory=list)
    ended: int = 0
    memory: SessionSnapshot | None = None


@dataclass(frozen=True)
class Packet:
    """A message or chunk in transit: to the server if `to_server`, otherwise to the device."""

    device: str
    to_server: bool
    content: object
    reliable: bool = False
    shared: bool = False


class World:
    """The connected state machines; each method causes one event.

    If states are `shared`, each is published once for all listening devices. `egress` counts the chunks that
    the server sent or published.
    """

    def __init__(
        self, devices: int, rules: RoundRules, seed: int = 0, blob_chunks: int = 3, *, shared: bool = False
    ) -> None:
        self.now = 0.0
        self.shared = shared
        self.egress = 0
        self.random = random.Random(seed)
        self.blob_chunks = blob_chunks
        self.network: list[Packet] = []
        self.todo: list[object] = []
        self.disk = Disk()
        self.federation = Federation(FEDERATION, RUN, rules)
        self.closed: list[on_server.CloseRound] = []
        self.notes: list[on_server.Note] = []
        self.outcome: str | None = None
        self.verdict: Reason | None = None
        self.nodes = {f"d{index}": Node(Session(FEDERATION, f"d{index}"), Disk()) for index in range(devices)}
        self.on_server(on_server.Started())
        for name in self.nodes:
            self.connect(name)

    # --- the server's side ---
    def on_server(self, event: on_server.Event) -> None:
        self.federation, commands = rounds.step(self.federation, event, self.now)
        for command in commands:
            self._do_on_server(command)

    def _do_on_server(self, command: on_server.Command) -> None:
        match command:
            case on_server.Send(device, message):
                self.network.append(Packet(device, False, message))
            case on_server.Announce(message):
                for device in self.nodes:
                    self.network.append(Packet(device, False, message))
            case on_server.SendChunks(device, ref, first, count):
                for chunk in self.disk.chunks(ref, first, count):
                    self.egress += 1
                    self.network.append(Packet(device, False, chunk))
            case on_server.Publish():
                self.publish_chunks(command)
            case on_server.WriteUpdateChunk(_, chunk):
                self.disk.write(chunk)
            case on_server.CloseRound():
                self.closed.append(command)
                self.todo.append(command)
            case on_server.PlanRound() | on_server.CheckUpdate() | on_server.RollBack():
                self.todo.append(command)
            case on_server.Note():
                self.notes.append(command)
            case on_server.EndRun(outcome, _):
                self.outcome = outcome

    def publish_chunks(self, command: on_server.Publish) -> None:
        """The broker forwards each chunk to every online device that listens to the channel."""
        for chunk in self.disk.chunks(command.ref, command.first, command.count):
            self.egress += 1
            for name, node in self.nodes.items():
                if node.online and command.channel in node.session.listens:
                    self.network.append(Packet(name, False, chunk, shared=True))

    def finish_job(self, index: int = 0) -> None:
        """Finish one of the server's jobs (planning, checking, aggregating)."""
        if not self.todo:
            return
        match self.todo.pop(index % len(self.todo)):
            case on_server.PlanRound() as plan:
                self.on_server(self.planned(plan))
            case on_server.CheckUpdate(device, update):
                sound = update.blob.digest in self.disk.parts and self.disk.verify(update.blob)
                reason = self.verdict if sound else Reason.DIGEST_MISMATCH
                self.on_server(on_server.UpdateChecked(device, update.blob.digest, reason))
            case on_server.CloseRound() as close:
                assert all(update.blob.digest in self.disk.blobs for update in close.updates.values())
                self.on_server(on_server.RoundClosed(close.round))
            case on_server.RollBack() as back:
                self.on_server(on_server.RolledBack(back, back.able[back.fewest :]))

    def planned(self, plan: on_server.PlanRound) -> on_server.RoundPlanned:
        """Choose the wanted number of devices, or all; with over-selection, fewer updates are needed."""
        self.disk.keep_only(plan.keep)
        wanted = len(plan.devices) if plan.wanted is None else plan.wanted
        chosen = self.random.sample(plan.devices, wanted)
        assignments = {device.name: self.assignment(plan) for device in chosen}
        needed = math.ceil(wanted / plan.over_select) if plan.over_select > 1 else None
        return on_server.RoundPlanned(plan.attempt, assignments, needed)

    def assignment(self, plan: on_server.PlanRound) -> on_server.Assignment:
        model = bytes([plan.round % 256]) * (CHUNK * self.blob_chunks - 7)
        fields = {
            **fields_of(plan, "round", "attempt"),
            "blobs": {"state": self.disk.put(model)},
            "channels": {"state": 1} if self.shared and plan.wanted is None else {},
        }
        task = plain_task(DeliverTask if plan.deliver else TrainTask, **fields)
        return on_server.Assignment(task, max_bytes=CHUNK * 100)

    # --- a device's side ---
    def on_device(self, name: str, event: on_device.Event) -> None:
        node = self.nodes[name]
        node.session, commands = device_side.step(node.session, event, self.now)
        for command in commands:
            self._do_on_device(name, node, command)

    def _do_on_device(self, name: str, node: Node, command: on_device.Command) -> None:
        match command:
            case on_device.SendMessage(message):
                self._to_server(name, message)
            case on_device.SendChunks(ref, first, count):
                for chunk in node.disk.chunks(ref, first, count):
                    self._to_server(name, chunk)
            case chunk_transfer.WriteChunk():
                node.disk.write(command)
            case chunk_transfer.VerifyBlob(ref):
                self.on_device(name, on_device.BlobChecked(ref.digest, node.disk.verify(ref)))
            case on_device.StartWork(task):
                node.work = task
            case on_device.StopWork():
                node.work = None
            case on_device.Settled():
                node.settled.append(command)
            case on_device.RunEnded():
                node.ended += 1

    def _to_server(self, name: str, content: object) -> None:
        if self.nodes[name].online:
            self.network.append(Packet(name, True, content))

    def finish_work(self, name: str) -> None:
        node = self.nodes[name]
        task, node.work = node.work, None
        if task is not None:
            self.on_device(name, on_device.WorkDone(self._result(name, node, task)))

    def _result(self, name: str, node: Node, task: Task) -> Update | Delivery:
        common = {"device": name, **fields_of(task, "federation", "run", "round", "attempt")}
        if isinstance(task, DeliverTask):
            return Delivery(**common, metrics=plain_metrics())
        data = f"{name} {task.round} {self.random.random()}".encode() * CHUNK
        blob = node.disk.put(data[: CHUNK * self.blob_chunks - 3])
        return Update(**common, blob=blob, metrics=TrainingMetrics(examples=1, epochs=1, steps=1))

    def fail_work(self, name: str) -> None:
        node = self.nodes[name]
        task, node.work = node.work, None
        if task is not None:
            failed = on_device.WorkFailed(task, Reason.TASK_FAILED, "no luck")
            self.on_device(name, failed)

    # --- the network ---
    def deliver(self, index: int = 0) -> None:
        """Deliver one packet; the test chooses which one, so packets can overtake each other."""
        if not self.network:
            return
        packet = self.network.pop(index % len(self.network))
        if packet.to_server:
            if isinstance(packet.content, Chunk):
                self.on_server(on_server.ChunkReceived(packet.device, packet.content))
            else:
                self.on_server(on_server.MessageReceived(packet.content))
        elif self.nodes[packet.device].online:
            if isinstance(packet.content, Chunk):
                arrived = on_device.ChunkArrived(packet.content, shared=packet.shared)
                self.on_device(packet.device, arrived)
            else:
                self.on_device(packet.device, on_device.Received(packet.content))

    def lose(self, index: int) -> None:
        if self.network and not self.network[index % len(self.network)].reliable:
            self.network.pop(index % len(self.network))

    def double(self, index: int) -> None:
        if self.network:
            self.network.append(self.network[index % len(self.network)])

    def connect(self, name: str) -> None:
        """Connect the device: it sends its birth, then the messages that its session repeats."""
        node = self.nodes[name]
        node.online, node.number = True, node.number + 1
        birth = Birth(
            federation=FEDERATION,
            device=name,
            session=node.number,
            data=DataCard(source="digits", examples=10, input_shape=(1, 8, 8), num_classes=10),
        )
        self.network.append(Packet(name, True, birth, reliable=True))
        self.on_device(name, on_device.Connected())
        if node.memory is not None:
            present = {digest: ChunkSet.of(sorted(part)) for digest, part in node.disk.parts.items()}
            memory, node.memory = node.memory, None
            self.on_device(name, on_device.SessionRestored(memory, present))

    def cut(self, name: str) -> None:
        """The device's link is cut: the broker publishes its last will."""
        node = self.nodes[name]
        if node.online:
            self.on_device(name, on_device.Disconnected())
            node.online = False
            death = Death(federation=FEDERATION, device=name, session=node.number)
            self.network.append(Packet(name, True, death))

    def kill(self, name: str) -> None:
        """The device's process dies: its memory and its work are lost, its blobs remain."""
        self.cut(name)
        node = self.nodes[name]
        node.work, node.disk.parts = None, {}
        node.session = Session(FEDERATION, name, held=frozenset(node.disk.blobs))

    def kill_and_remember(self, name: str) -> None:
        """The device's process dies; the state on its disk is restored when it reconnects."""
        node = self.nodes[name]
        parts = {digest: dict(part) for digest, part in node.disk.parts.items()}
        memory = SessionSnapshot.model_validate_json(node.session.snapshot.model_dump_json())
        self.kill(name)
        node.disk.parts = parts
        # A process that dies before it has connected keeps the snapshot that it found.
        node.memory = node.memory or memory

    def pass_time(self, seconds: float) -> None:
        """Advance the clock and send a tick to the server and all online devices."""
        self.now += seconds
        self.on_server(on_server.Tick())
        for name, node in self.nodes.items():
            if node.online:
                self.on_device(name, on_device.Tick())

    def one_fair_turn(self) -> None:
        """Deliver a packet, or else finish a job, or else finish all work, or else let time pass."""
        if self.network:
            self.deliver()
        elif self.todo:
            self.finish_job()
        elif any(node.work for node in self.nodes.values()):
            for name in self.nodes:
                self.finish_work(name)
        else:
            self.pass_time(1.0)

    def one_bad_turn(self, loss: float) -> None:
        """Like a fair turn, but packets overtake each other and a share `loss` is lost or duplicated."""
        index = self.random.randrange(10_000)
        if self.network and self.random.random() < loss:
            self.random.choice([self.lose, self.double])(index)
        elif self.network:
            self.deliver(index)
        else:
            self.one_fair_turn()

    def run_fairly(self, *, turns: int = 20_000) -> None:
        """Connect all devices and take fair turns until the run has ended."""
        for name, node in self.nodes.items():
            if not node.online:
                self.connect(name)
        for _ in range(turns):
            if self.federation.phase is Phase.ENDED and not self.network:
                return
            self.one_fair_turn()
        raise AssertionError(f"stuck in {self.federation.phase}, round {self.federation.round}")
