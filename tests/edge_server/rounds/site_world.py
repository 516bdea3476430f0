"""A server, gateways in a tree, and their devices, connected in memory; gateways die and return.

All state machines are the real ones. A device's update is a list of whole numbers that follow from the model
and the device, so a federation with gateways must end with the numbers of one without.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from edge_client.agent.session import events as on_device
from edge_client.transport.chunk_transfer import VerifyBlob, WriteChunk
from edge_server.rounds import events as on_server
from edge_server.rounds.gateway import events as on_site
from edge_server.rounds.gateway import machine as gateways
from edge_server.rounds.gateway.state import Gateway
from edge_server.rounds.machine import RoundRules
from edge_server.rounds.sites.presence import Sites
from schemas import messages
from schemas.base import is_of_site, site_of
from schemas.errors import Reason
from schemas.tensors.chunks import BlobRef, Chunk
from schemas.values import TrainingMetrics
from tests.edge_server.rounds.world import FEDERATION, RUN, Disk, Node, World

NUMBERS = 300
"""Numbers of a model: several chunks."""
Numbers = list[int]


def encode(numbers: Numbers) -> bytes:
    return json.dumps(numbers).encode()


def trained(model: Numbers, device: str) -> Numbers:
    """What a device adds to the model: numbers that depend on both."""
    seed = hashlib.sha256(encode(model) + device.encode()).digest()
    return [seed[n % 32] * (n + 1) % 1000 - 500 for n in range(len(model))]


def weight(device: str) -> int:
    return 1 + len(device) + sum(device.encode()) % 7


def added(parts: Sequence[tuple[int, Numbers]]) -> Numbers:
    return [sum(count * numbers[n] for count, numbers in parts) for n in range(NUMBERS)]


@dataclass
class SiteNode:
    """A gateway's process, disk and journal; it is `up` or not."""

    gateway: Gateway
    disk: Disk = field(default_factory=Disk)
    session: int = 1
    up: bool = True
    lives: int = 1
    devices: dict[str, int] = field(default_factory=dict)
    tasks: dict[str, messages.Task] = field(default_factory=dict)
    updates: dict[str, messages.Update] = field(default_factory=dict)
    deaths: int = 0


@dataclass(frozen=True)
class Hop:
    """A message on its way to one process: the server (""), a gateway or a device."""

    to: str
    event: object
    reliable: bool = False
    far: int = 0


class SiteWorld(World):
    """The connected machines; `far_bytes` counts the bytes of blobs that cross the links of gateways."""

    def __init__(
        self, devices: Sequence[str], sites: Sequence[str], rules: RoundRules, seed: int = 0
    ) -> None:
        self.sites: dict[str, SiteNode] = {}
        self.jobs: list[tuple[str, int, Callable[[], object]]] = []
        self.retained: dict[tuple[str, str], Hop] = {}
        self.model: Numbers = [n % 17 for n in range(NUMBERS)]
        self.site_names = tuple(sites)
        self.far_bytes = 0
        self.sums_at_server: dict[str, Numbers] = {}
        super().__init__(0, replace(rules, sites=tuple(sites)), seed)
        self.federation = replace(self.federation, sites=Sites(tuple(sites)))
        for site in sites:
            self.sites[site] = SiteNode(Gateway(FEDERATION, site))
        for site in sorted(sites, key=len):
            self.link(site)
        from edge_client.agent.session.machine import Session

        for name in devices:
            self.nodes[name] = Node(Session(FEDERATION, name), Disk())
            self.connect(name)

    # --- where things are ---
    def parent(self, name: str) -> str:
        """The innermost site around a device or site; the server without one."""
        around = [site for site in self.site_names if is_of_site(name, site)]
        return max(around, key=len, default="")

    def way_down(self, at: str, device: str) -> str:
        """The next process on the way from the server or a gateway to a device."""
        inside = [site for site in self.site_names if not at or is_of_site(site, at)]
        return site_of(device, inside) or device

    def send(self, to: str, event: object, *, reliable: bool = False) -> None:
        self.network.append(Hop(to, event, reliable))  # type: ignore[arg-type]

    def retain(self, broker: str, topic: str, to: str, event: object) -> None:
        """Publish a retained message: whoever reads the broker gets it now, and again after a connect."""
        self.retained[broker, topic] = Hop(to, event, reliable=True)
        self.send(to, event, reliable=True)

    # --- the server ---
    def _do_on_server(self, command: Any) -> None:
        match command:
            case on_server.Send(device, message):
                self.send_down("", device, message)
            case on_server.Announce(message):
                self.announce("", message)
            case on_server.SendChunks(device, ref, first, count):
                if not (command.pushed and self.way_down("", device) != device):
                    for chunk in self.disk.chunks(ref, first, count):
                        self.send_chunk_down("", device, chunk)
            case on_server.SendToSite(site, message):
                self.send(site, on_site.MessageForSite(message))
            case on_server.SendTerms(site):
                terms = messages.SiteTerms(federation=FEDERATION, site=site, run=RUN, sites=self.site_names)
                self.send(site, on_site.MessageForSite(terms))
            case WriteChunk():
                self.disk.write(command)
            case on_server.CloseRound():
                self.closed.append(command)
                self.todo.append(command)
            case on_server.WeighUpdates() | on_server.CheckSum():
                self.todo.append(command)
            case _:
                super()._do_on_server(command)

    def announce(self, at: str, message: Any) -> None:
        for device in self.nodes:
            if self.parent(device) == at:
                self.send(device, on_device.Received(message))
        for site in self.site_names:
            if self.parent(site) == at:
                self.retain(at, f"all for {site}", site, on_site.Announced(message))

    def send_down(self, at: str, device: str, message: Any) -> None:
        to = self.way_down(at, device)
        told = on_device.Received(message) if to == device else on_site.MessageForDevice(device, message)
        self.send(to, told)

    def send_chunk_down(self, at: str, device: str, chunk: Chunk) -> None:
        to = self.way_down(at, device)
        self.far_bytes += len(chunk.data) if to != device and not at else 0
        self.send(to, on_device.ChunkArrived(chunk) if to == device else on_site.ChunkFromAbove(chunk))

    def finish_job(self, index: int = 0) -> None:
        if self.jobs and (not self.todo or index % 2):
            site, life, job = self.jobs.pop(index % len(self.jobs))
            node = self.sites[site]
            if node.up and node.lives == life:
                result = job()
                if result is not None:
                    self.on_gateway(site, result)
            return
        if not self.todo:
            return
        match self.todo[index % len(self.todo)]:
            case on_server.CheckUpdate(device, update) as check if update.receipt is not None:
                self.todo.remove(check)
                reason = update.receipt.reason
                self.on_server(on_server.UpdateChecked(device, update.blob.digest, reason))
            case on_server.WeighUpdates(close) as weighing:
                self.todo.remove(weighing)
                lying = {d: weight(d) for d, u in close.updates.items() if u.receipt is not None}
                self.on_server(on_server.UpdatesWeighed(close.round, lying, 10**6))
            case on_server.CheckSum(site, ref) as check:
                self.todo.remove(check)
                sound = ref.digest in self.disk.parts and self.disk.verify(ref)
                self.on_server(on_server.SumChecked(site, ref.digest, "" if sound else "damaged"))
            case on_server.CloseRound() as close:
                self.todo.remove(close)
                self.aggregate(close)
                self.on_server(on_server.RoundClosed(close.round))
            case _:
                super().finish_job(index)

    def aggregate(self, close: on_server.CloseRound) -> None:
        """Add direct updates and sums, and check that the sums are those of exactly the counted members."""
        parts = [
            (weight(device), json.loads(self.disk.blobs[update.blob.digest]))
            for device, update in close.updates.items()
            if update.receipt is None
        ]
        summed = [device for found in close.sums.values() for device in found.members]
        assert sorted(summed) == sorted(d for d, u in close.updates.items() if u.receipt is not None)
        for found in close.sums.values():
            assert found.blob is not None
            parts.append((1, json.loads(self.disk.blobs[found.blob.digest])))
        total = sum(map(weight, close.updates))
        self.model = [n + change // total for n, change in zip(self.model, added(parts), strict=True)]

    def planned(self, plan: on_server.PlanRound) -> on_server.RoundPlanned:
        """All devices take part."""
        self.disk.keep_only(plan.keep)
        return on_server.RoundPlanned(plan.attempt, {d.name: self.assignment(plan) for d in plan.devices})

    def assignment(self, plan: on_server.PlanRound) -> on_server.Assignment:
        given = super().assignment(plan)
        task = given.task.model_copy(update={"blobs": {"state": self.disk.put(encode(self.model))}})
        return on_server.Assignment(task, 10**6)

    # --- gateways ---
    def on_gateway(self, site: str, event: Any) -> None:
        node = self.sites[site]
        node.gateway, commands = gateways.step(node.gateway, event, self.now)
        for command in commands:
            self._do_on_gateway(site, node, command)

    def _do_on_gateway(self, site: str, node: SiteNode, command: Any) -> None:
        match command:
            case on_site.SendAbove(message, device):
                self.tell_above(site, node, message, device)
            case on_server.Send(device, message):
                self.send_down(site, device, message)
            case on_server.SendToSite(below, message):
                self.send(below, on_site.MessageForSite(message))
            case on_server.Announce(message):
                self.announce(site, message)
            case on_site.SendChunksAbove(ref, first, count, device):
                for chunk in node.disk.chunks(ref, first, count):
                    self.chunk_above(site, device, chunk)
            case on_site.PassChunkOn(device, chunk):
                self.chunk_above(site, device, chunk)
            case on_site.SendChunksBelow(device, ref, index):
                for chunk in node.disk.chunks(ref, index, 1):
                    self.send_chunk_down(site, device, chunk)
            case WriteChunk():
                node.disk.write(command)
            case on_site.RememberTask(device, task):
                node.tasks[device] = task
            case on_site.RecordRefused(update):
                node.updates[update.device] = update
            case on_site.Forget(run, oldest):
                kept = {d: u for d, u in node.updates.items() if u.run == run and u.round >= oldest}
                node.updates = kept
                self.begin(site, lambda: self.forget(node))
            case _:
                self._do_slowly(site, node, command)

    def _do_slowly(self, site: str, node: SiteNode, command: Any) -> None:
        match command:
            case VerifyBlob(ref):
                self.begin(site, lambda: on_site.BlobVerified(ref.digest, verified(node.disk, ref)))
            case on_server.CheckSum(below, ref):
                damaged = not verified(node.disk, ref)
                self.begin(site, lambda: on_server.SumChecked(below, ref.digest, damaged=damaged))
            case on_site.ExamineUpdate(update, _):
                self.begin(site, lambda: self.examined(site, node, update))
            case on_site.MakeSum(request, updates, parts):
                self.begin(site, lambda: self.make_sum(node, request, updates, parts))

    def begin(self, site: str, job: Callable[[], object]) -> None:
        self.jobs.append((site, self.sites[site].lives, job))

    def forget(self, node: SiteNode) -> None:
        used = node.gateway.in_use()
        node.disk.blobs = {digest: data for digest, data in node.disk.blobs.items() if digest in used}

    def examined(self, site: str, node: SiteNode, update: messages.Update) -> on_site.UpdateExamined:
        sound = verified(node.disk, update.blob)
        reason = None if sound else Reason.DIGEST_MISMATCH
        judged = update.model_copy(
            update={"receipt": messages.SiteReceipt(site=site, reason=reason, moved=True)}
        )
        node.updates[update.device] = judged
        return on_site.UpdateExamined(judged)

    def make_sum(
        self,
        node: SiteNode,
        request: messages.SumRequest,
        updates: Sequence[messages.Update],
        parts: Sequence[Any],
    ) -> on_site.SumMade:
        counted = [
            (request.members[u.device].weight, json.loads(node.disk.blobs[u.blob.digest])) for u in updates
        ]
        counted += [(1, json.loads(node.disk.blobs[part.blob.digest])) for part in parts]
        return on_site.SumMade(request, node.disk.put(encode(added(counted))))

    def tell_above(self, site: str, node: SiteNode, message: Any, device: str) -> None:
        above = self.parent(site)
        if isinstance(message, messages.Birth):
            node.devices[device] = message.session
        if isinstance(message, messages.Death):
            node.devices.pop(device, None)
        if above:
            spoke = on_site.DeviceSpoke(message, most_bytes=10**6) if device else None
            event: object = spoke or on_server.SiteSpoke(site, message)
        else:
            event = on_server.MessageReceived(message) if device else on_server.SiteSpoke(site, message)
        if isinstance(message, messages.Birth | messages.Death | messages.SiteBirth):
            self.retain(above, device or site, above, event)
        else:
            self.send(above, event)

    def chunk_above(self, site: str, device: str, chunk: Chunk) -> None:
        above = self.parent(site)
        self.far_bytes += 0 if above else len(chunk.data)
        if above:
            below = on_server.ChunkReceived(device, chunk)
            self.send(above, below if device else on_server.SiteChunkReceived(site, chunk))
        else:
            up = on_server.ChunkReceived(device, chunk)
            self.send(above, up if device else on_server.SiteChunkReceived(site, chunk))

    def link(self, site: str) -> None:
        """A gateway's process connects to both brokers and gets what they have retained for it."""
        self.on_gateway(site, on_site.LinkedAbove(self.sites[site].session))
        for (broker, _), hop in list(self.retained.items()):
            if hop.to == site and broker in (site, self.parent(site)):
                self.network.append(hop)  # type: ignore[arg-type]

    def kill_gateway(self, site: str) -> None:
        """A gateway's process is killed: its disk and its journal remain, and its last will is published."""
        node = self.sites[site]
        if not node.up:
            return
        node.up, node.deaths = False, node.deaths + 1
        death = messages.SiteDeath(federation=FEDERATION, site=site, session=node.session)
        above = self.parent(site)
        event = on_server.SiteSpoke(site, death)
        self.retain(above, site, above, event)

    def return_gateway(self, site: str) -> None:
        """A killed gateway starts again with what its journal has."""
        node = self.sites[site]
        if node.up:
            return
        node.up, node.lives, node.session = True, node.lives + 1, node.session + 1
        node.disk.parts = {}
        updates = {
            device: update
            for device, update in node.updates.items()
            if update.receipt is not None and (update.receipt.reason or update.blob.digest in node.disk.blobs)
        }
        node.gateway = Gateway(
            FEDERATION,
            site,
            before=dict(node.devices),
            tasks=dict(node.tasks),
            updates=updates,
            pending=frozenset(updates),
            held=frozenset(node.disk.blobs),
        )
        self.link(site)

    # --- devices and the network ---
    def _to_server(self, name: str, content: object) -> None:
        if self.nodes[name].online:
            self.device_says(name, content)

    def device_says(self, name: str, content: object) -> None:
        site = self.parent(name)
        if isinstance(content, Chunk):
            self.send(site, on_server.ChunkReceived(name, content))
            return
        said: Any = content
        event = on_site.DeviceSpoke(said, most_bytes=10**6) if site else on_server.MessageReceived(said)
        if isinstance(content, messages.Birth | messages.Death):
            self.retain(site, name, site, event)
        else:
            self.send(site, event)

    def _result(self, name: str, node: Node, task: messages.Task) -> Any:
        if not isinstance(task, messages.TrainTask):
            return super()._result(name, node, task)
        model = json.loads(node.disk.blobs[task.blobs["state"].digest])
        blob = node.disk.put(encode(trained(model, name)))
        about = {"federation": FEDERATION, "device": name, "run": RUN, "round": task.round}
        metrics = TrainingMetrics(examples=weight(name), epochs=1, steps=1)
        return messages.Update(**about, attempt=task.attempt, blob=blob, metrics=metrics)

    def deliver(self, index: int = 0) -> None:
        if not self.network:
            return
        hop: Any = self.network.pop(index % len(self.network))
        if not isinstance(hop, Hop):
            hop = self.as_hop(hop)
            if hop is None:
                return
        if hop.to == "":
            self.on_server(hop.event)
        elif hop.to in self.sites:
            if self.sites[hop.to].up:
                self.on_gateway(hop.to, hop.event)
        elif self.nodes[hop.to].online:
            self.on_device(hop.to, hop.event)

    def as_hop(self, packet: Any) -> Hop | None:
        """A packet that the world without sites has made: births and deaths of devices."""
        self.device_says(packet.device, packet.content)
        return None

    def pass_time(self, seconds: float) -> None:
        super().pass_time(seconds)
        for site, node in self.sites.items():
            if node.up:
                self.on_gateway(site, on_server.Tick())

    def one_fair_turn(self) -> None:
        if not self.network and self.jobs:
            self.finish_job(1)
        else:
            super().one_fair_turn()

    def run_fairly(self, *, turns: int = 100_000) -> None:
        for site in sorted(self.sites, key=len):
            self.return_gateway(site)
        super().run_fairly(turns=turns)

    @property
    def digest(self) -> str:
        return hashlib.sha256(encode(self.model)).hexdigest()


def verified(disk: Disk, ref: BlobRef) -> bool:
    """Whether a blob is here, or its parts make it."""
    return ref.digest in disk.blobs or (ref.digest in disk.parts and disk.verify(ref))
