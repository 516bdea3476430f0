"""Whole masked rounds in memory: real sessions and masks, and a network that tests can disturb."""

import contextlib

import numpy as np

from edge_client.agent.session import events as on_device
from edge_client.pruning.index_sets import expand, expected_shapes
from edge_client.security.secure_aggregation.mask_update import masked_groups
from edge_server.coordinator.tasks.masking import sum_masked_updates
from edge_server.coordinator.validation.update import examine_masked
from edge_server.rounds import events as on_server
from edge_server.rounds.machine import RoundRules
from edge_server.strategy.aggregation.updates import ClientUpdate
from schemas.base import fields_of
from schemas.errors import PeerError, Reason
from schemas.messages import DeliverTask, Message, Task, Update
from schemas.security.secure_aggregation import MaskingTerms
from schemas.tensors.chunks import encode_json
from tests.edge_server.rounds.world import World
from tests.edge_server.security.secure_aggregation.cohorts import CHANNELS, TIERS, carried, terms_of
from tests.groups import decode_groups, encode_groups
from tests.schemas.examples import plain_update

EXAMPLES = 10


class MaskedWorld(World):
    """Devices of three alternating tiers, each with its own update per round; the server sums them."""

    def __init__(self, devices: int, rules: RoundRules, seed: int = 0) -> None:
        self.updates: dict[tuple[str, int], dict[str, np.ndarray]] = {}
        self.means: list[tuple[on_server.CloseRound, dict[str, np.ndarray]]] = []
        self.seen: list[object] = []
        self.bare: set[str] = set()
        super().__init__(devices, rules, seed)

    # --- the server's jobs ---
    def planned(self, plan):
        planned = super().planned(plan)
        if plan.deliver:
            return planned
        specs = {name: TIERS[int(name[1:]) % 3] for name in planned.assignments}
        terms = terms_of(tuple(specs.values()), max_weight=EXAMPLES)
        return on_server.RoundPlanned(
            plan.attempt,
            {
                name: self.masked_assignment(assignment, terms, specs[name])
                for name, assignment in planned.assignments.items()
            },
            planned.needed,
        )

    def masked_assignment(self, assignment, terms: MaskingTerms, spec):
        described = self.disk.put(encode_json(CHANNELS))
        blobs = {**assignment.task.blobs, "channel-map": described}
        task = assignment.task.model_copy(update={"masking": terms, "spec": spec, "blobs": blobs})
        return on_server.Assignment(task, assignment.max_bytes)

    def finish_job(self, index: int = 0) -> None:
        job = self.todo[index % len(self.todo)] if self.todo else None
        if isinstance(job, on_server.CheckUpdate):
            self.todo.remove(job)
            self.on_server(on_server.UpdateChecked(job.device, job.update.blob.digest, self.examined(job)))
            return
        if isinstance(job, on_server.CloseRound):
            sources = [
                ClientUpdate(name, update.spec, self.groups(update), update.metrics.examples)
                for name, update in job.updates.items()
            ]
            mean = sum_masked_updates(sources, job.opened, CHANNELS)
            self.means.append((job, mean.groups["model"]))
        super().finish_job(index)

    def examined(self, job) -> Reason | None:
        if job.update.blob.digest not in self.disk.parts or not self.disk.verify(job.update.blob):
            return Reason.DIGEST_MISMATCH
        task = self.federation.participants[job.device].assignment.task
        try:
            examine_masked(job.update, self.groups(job.update), task, job.segments)
        except PeerError as error:
            return Reason(error.reason)
        return None

    def groups(self, update: Update):
        return decode_groups(self.disk.blobs[update.blob.digest])

    # --- a device's edge ---
    def on_device(self, name, event):
        with contextlib.suppress(PeerError):  # a device logs what it refuses and continues
            super().on_device(name, event)

    def _do_on_device(self, name, node, command):
        match command:
            case on_device.DrawEntropy(task):
                self.on_device(name, on_device.EntropyDrawn(task, self.random.randbytes(32)))
            case on_device.MaskUpdate(update, membership):
                bare = decode_groups(node.disk.blobs[update.blob.digest])
                groups = masked_groups(bare, update.metrics.examples, membership, CHANNELS)
                blob = node.disk.put(encode_groups(groups))
                masked = update.model_copy(update={"blob": blob})
                self.on_device(name, on_device.UpdateMasked(masked))
            case _:
                super()._do_on_device(name, node, command)

    def _result(self, name, node, task: Task):
        if isinstance(task, DeliverTask):
            return super()._result(name, node, task)
        rng = np.random.default_rng(self.random.randrange(2**32))
        delta = {
            parameter: rng.uniform(-1, 1, shape).astype(np.float32)
            for parameter, shape in expected_shapes(task.spec, CHANNELS).items()
        }
        self.updates[name, task.attempt] = delta
        blob = node.disk.put(encode_groups({"model": delta}))
        self.bare.add(blob.digest)
        return plain_update(name, EXAMPLES, blob=blob, **fields_of(task, "round", "attempt", "spec"))

    def _to_server(self, name: str, content: object) -> None:
        if isinstance(content, Message):
            content = carried(content)
        self.seen.append(content)
        super()._to_server(name, content)

    # --- queries of the tests ---
    def until(self, condition, *, turns: int = 5_000) -> None:
        """Take fair turns until the condition is met."""
        for _ in range(turns):
            if condition():
                return
            self.one_fair_turn()
        raise AssertionError("the condition was never met")

    def stage(self) -> str | None:
        return None if self.federation.masking is None else self.federation.masking.stage.value

    def plain(self, close: on_server.CloseRound) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """The mean over the holders in a closed round, and where it must be shown."""
        mean, shown = {}, {}
        for parameter in CHANNELS.parameters:
            total, holders = 0.0, 0
            for name, update in close.updates.items():
                delta = {parameter: self.updates[name, update.attempt][parameter].astype(np.float64)}
                full, held = expand(delta, update.spec, CHANNELS)
                total, holders = total + full[parameter], holders + held[parameter].astype(int)
            shown[parameter] = holders >= 3
            mean[parameter] = np.divide(total, holders, out=np.zeros_like(total), where=shown[parameter])
        return mean, shown
