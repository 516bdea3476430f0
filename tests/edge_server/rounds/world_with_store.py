"""A `World` with an object store that fails as often as a test requires."""

from edge_client.agent.session import events as on_device
from edge_client.transport.object_store.http_transfers import Fetch, FetchEnded, Put, PutEnded, StopTransfers
from edge_server.rounds import events as on_server
from edge_server.rounds.machine import RoundRules
from schemas.messages import DeliverTask, Task, TrainTask, Update
from schemas.messages.blobs import Addresses, ObjectStoreTerms
from schemas.tensors.chunks import ChunkSet
from tests.edge_server.rounds.world import CHUNK, Node, World

STORE = "https://store/"


class WorldWithStore(World):
    """Blobs of two chunks or more bypass the broker; a share `failing` of the store operations fails."""

    def __init__(self, devices: int, rules: RoundRules, *, failing: float, **more: int) -> None:
        self.failing, self.generation = failing, 0
        self.objects: dict[str, bytes] = {}
        self.transfers: dict[str, list[Fetch | Put]] = {}
        self.transferred = {"down": 0, "up": 0}
        super().__init__(devices, rules, **more)

    # --- the server's side ---
    def assignment(self, plan: on_server.PlanRound) -> on_server.Assignment:
        planned = super().assignment(plan)
        depot = ObjectStoreTerms(address=STORE, above=CHUNK, resumable=True)
        return on_server.Assignment(planned.task.model_copy(update={"depot": depot}), planned.max_bytes)

    def _do_on_server(self, command: on_server.Command) -> None:
        match command:
            case on_server.Send(device, TrainTask() | DeliverTask() as task):
                super()._do_on_server(on_server.Send(device, self._addressed(task)))
            case _:
                super()._do_on_server(command)

    def _addressed(self, task: Task) -> Task:
        """Add new addresses to the offer; sometimes the store does not have the blobs."""
        self.generation += 1
        get = {} if self._fails() else {"state": f"{STORE}get?{self.generation}"}
        return task.model_copy(update={"addresses": Addresses(get=get, put=f"{STORE}put?{self.generation}")})

    def finish_job(self, index: int = 0) -> None:
        job = self.todo[index % len(self.todo)] if self.todo else None
        if not isinstance(job, on_server.CheckUpdate) or not job.update.deposited:
            super().finish_job(index)
            return
        data = self.objects.get(job.update.blob.digest)
        if data is None or self._fails():
            self.todo.remove(job)
            self.on_server(on_server.NotInObjectStore(job.device, job.update.blob.digest))
            return
        ref = job.update.blob
        pieces = {n: data[n * CHUNK : (n + 1) * CHUNK] for n in range(ref.chunks)}
        self.disk.parts[ref.digest] = pieces
        super().finish_job(index)

    # --- a device's side ---
    def _do_on_device(self, name: str, node: Node, command: on_device.Command) -> None:
        match command:
            case Fetch() | Put():
                self.transfers.setdefault(name, []).append(command)
            case StopTransfers():
                self.transfers.pop(name, None)
            case _:
                super()._do_on_device(name, node, command)

    def finish_transfer(self, name: str) -> None:
        """End one transfer of the device: complete, interrupted, or because its address has expired."""
        node, waiting = self.nodes[name], self.transfers.get(name)
        if not waiting:
            return
        transfer = waiting.pop(0)
        digest, expired = transfer.ref.digest, self._fails()
        done = not expired and not self._fails()
        if isinstance(transfer, Put):
            if done:
                self.objects[digest] = node.disk.blobs[digest]
                self.transferred["up"] += 1
            self.on_device(name, PutEnded(digest, done, expired))
            return
        data = self.disk.blobs.get(digest)
        for index in range(transfer.ref.chunks if done else 1 - expired):
            if data is not None:
                piece = data[index * CHUNK : (index + 1) * CHUNK]
                node.disk.parts.setdefault(digest, {})[index] = piece
        self.transferred["down"] += done
        have = ChunkSet.of(sorted(node.disk.parts.get(digest, {})))
        self.on_device(name, FetchEnded(digest, have, expired))

    def kill(self, name: str) -> None:
        self.transfers.pop(name, None)
        super().kill(name)

    def one_fair_turn(self) -> None:
        busy = [name for name, waiting in self.transfers.items() if waiting]
        if self.network or not busy:
            super().one_fair_turn()
        else:
            self.finish_transfer(self.random.choice(busy))

    def _fails(self) -> bool:
        return self.random.random() < self.failing

    def counted(self) -> list[Update]:
        return [update for closed in self.closed for update in closed.updates.values()]
