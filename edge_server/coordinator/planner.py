"""Planning a round or a delivery: which devices take part, and their tasks."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from edge_client.pruning.channel_selection import mean_ratio
from edge_server.coordinator.model_state import ModelState
from edge_server.coordinator.run_storage import RunStorage
from edge_server.coordinator.step_graphs import StepGraphs, needs_graphs
from edge_server.coordinator.tasks.masking import with_local_examples
from edge_server.coordinator.tasks.model_publisher import ModelPublisher
from edge_server.coordinator.tasks.selection_log import record_selection
from edge_server.coordinator.tasks.task import TaskPlan, plan_training_tasks
from edge_server.coordinator.tasks.task_assigner import TaskAssigner
from edge_server.coordinator.tier_assignment import TierAssigner
from edge_server.coordinator.validation.consistency import cap_birth_claims
from edge_server.rounds.events import PlanRound, RoundPlanned
from edge_server.rounds.fleet import Device
from edge_server.strategy.explanations import RoundChoices
from edge_server.strategy.pruning.pruners import Cut
from edge_server.strategy.selection.policies import Client
from edge_server.strategy.strategy import Plan, downlink_groups, plan
from schemas.errors import EdgeError
from schemas.messages.tasks import GRAPH
from schemas.submodel import SubModelSpec
from schemas.tensors.blobs import CHUNK_BYTES, Arrays, BlobRef

log = logging.getLogger(__name__)

DeviceGraphs = dict[str, dict[str, BlobRef]]
"""The blobs of each device's ONNX graphs, by their names."""


class Planner:
    """Chooses the devices of a planning and makes their tasks; `journaled` are the classes in the journal."""

    def __init__(
        self,
        model: ModelState,
        storage: RunStorage,
        assigning: TaskAssigner,
        publisher: ModelPublisher,
        tiering: TierAssigner,
        *,
        journaled: tuple[str, ...],
    ) -> None:
        self._context, self._model, self._storage = model.context, model, storage
        self._assigning, self._publisher, self._tiering = assigning, publisher, tiering
        self._journaled = journaled
        self._exaggerated: Mapping[str, str] = {}
        context = model.context
        self._steps = StepGraphs(
            model.network, context.channel_map, context.spec.input_shape, context.spec.name
        )

    def plan(self, command: PlanRound, *, chunk_bytes: int = CHUNK_BYTES) -> RoundPlanned:
        """Choose devices and make their tasks, whose blobs travel in chunks of `chunk_bytes`.

        The tasks are in the journal when this returns.
        """
        self._name_classes(command.classes)
        command = self._with_believed_births(command)
        described = self._assigning.store_channel_map(chunk_bytes)
        self._storage.forget_blobs(command.keep | {described.digest} | self._publisher.digests)
        needed: int | None = None
        choices: RoundChoices | None = None
        self._tiering.place(command.devices, self._model.state.paces, command.round)
        clients = [Client(d.name, self._tiering.tier(d), d.data.examples) for d in command.devices]
        present = {client.name: (client.tier, client.examples) for client in clients}
        entropy = self._entropy(command)
        if command.deliver:
            jobs = {device.name: self._delivery(device) for device in command.devices}
            graphs = self._delivered_graphs(jobs, chunk_bytes)
        else:
            self._model.add_clients(present)
            jobs, needed, choices = self._training(command, clients, np.random.default_rng(entropy))
            if ended := self._context.privacy.over_budget(self._model.state):
                return RoundPlanned(command.attempt, {}, ended=ended)
            jobs = self._kept_private(jobs, command)
            graphs = self._step_graphs(jobs, command.devices, chunk_bytes)
            needed = None if needed is None else min(needed, len(jobs))
        assignments = self._assigning.assign(
            command,
            jobs,
            self._model.state,
            state_sha256=self._model.sha256,
            channel_map=described,
            tiers=lambda: self._model.tier_specs().values(),
            graphs=graphs,
        )
        self._storage.journal.planned(
            command.attempt,
            command.round,
            assignments,
            devices=command.devices,
            clients=present,
            needed=needed,
            rng=entropy,
            deliver=command.deliver,
            choices=choices,
        )
        return RoundPlanned(command.attempt, assignments, needed)

    def _name_classes(self, names: tuple[str, ...]) -> None:
        """Write the classes that devices have agreed on to disk before any device trains by them."""
        if names and names != self._journaled:
            self._storage.journal.agreed(names)
            self._journaled = names
        if names and names != self._context.testing.classes:
            self._context.testing.agree(names)
            self._assigning.set_preprocessing(self._context.testing.preprocessing)

    def _with_believed_births(self, command: PlanRound) -> PlanRound:
        """The planning with each device's claims capped."""
        devices, exaggerated = cap_birth_claims(command.devices, self._context.strategy.claims)
        for name, words in exaggerated.items():
            if self._exaggerated.get(name) != words:
                log.warning("%s: %s", name, words, extra={"device": name})
        self._exaggerated = exaggerated
        return replace(command, devices=devices)

    def _entropy(self, command: PlanRound) -> tuple[int, ...]:
        """The seed of a planning's random generator, the same when the planning is repeated."""
        seed = self._context.config.federation.seed
        return (seed, command.round, command.retry, *self._context.privacy.entropy(self._model.state))

    def _training(
        self, command: PlanRound, clients: Sequence[Client], rng: np.random.Generator
    ) -> tuple[dict[str, TaskPlan], int | None, RoundChoices | None]:
        planned = plan(
            self._context.strategy,
            self._model.state,
            clients,
            self._context.network,
            rng,
            over_select=command.over_select,
            wanted=command.wanted,
        )
        privacy = self._context.privacy
        self._model.state = privacy.planned(self._model.state, planned, population=len(clients))
        tiers = {client.name: client.tier for client in clients}
        # Devices that join an open round do not change how many updates it needs.
        needed = planned.needed if command.wanted is None else None
        jobs = plan_training_tasks(planned, tiers, self._context.config)
        return jobs, needed, self._choices(command, clients, planned)

    def _kept_private(self, jobs: dict[str, TaskPlan], command: PlanRound) -> dict[str, TaskPlan]:
        """The jobs of devices that may take part under the run's privacy; what it has spent is on disk."""
        if self._context.privacy.on:
            # The chosen devices decide the divisor of the round's sums, also when it is computed again.
            self._model.save_checkpoint(durable=self._context.durable)
        masked = self._context.config.privacy.secure_aggregation
        return with_local_examples(jobs, command.devices) if masked else jobs

    def _choices(self, command: PlanRound, clients: Sequence[Client], planned: Plan) -> RoundChoices | None:
        """Why these devices were chosen; None with differential privacy, which keeps the choice secret."""
        if self._context.privacy.on:
            return None
        ratios = {name: assignment.ratio for name, assignment in planned.assignments.items()}
        selection = self._context.strategy.selection
        why = selection.explain(self._model.state.selection, clients, frozenset(ratios))
        return record_selection(command, ratios, why, self._tiering.tier)

    def _delivery(self, device: Device) -> TaskPlan:
        tier = self._tiering.tier(device)
        ratio = self._context.config.tiers.ratios[tier - 1]
        level = mean_ratio(ratio)
        provenance = self._model.provenance(tier, level)
        return TaskPlan(tier, Cut(self._model.tier_spec(ratio)), level, provenance=provenance)

    def _delivered_graphs(self, jobs: Mapping[str, TaskPlan], chunk_bytes: int) -> DeviceGraphs:
        """The ONNX graph of each device's sub-model, drawn once per sub-model."""
        params, found = self._model.state.params, DeviceGraphs()
        for name, job in jobs.items():
            graph = self._model.network.graph(params, job.cut.spec)
            if graph is not None:
                found[name] = {GRAPH: self._storage.store.put(graph, chunk_bytes=chunk_bytes)}
        return found

    def _step_graphs(
        self, jobs: dict[str, TaskPlan], devices: Iterable[Device], chunk_bytes: int
    ) -> DeviceGraphs:
        """The graphs of devices that train without torch; devices without graphs lose their job."""
        found = DeviceGraphs()
        for device in devices:
            if device.name not in jobs or not needs_graphs(device):
                continue
            cut = jobs[device.name].cut
            try:
                graphs = self._steps.of(
                    self._model.params_of(cut.spec),
                    cut.spec,
                    cut.objectives,
                    self._widths(cut.spec),
                    trains=cut.train and jobs[device.name].local_epochs > 0,
                )
            except EdgeError as error:
                about_it = {"device": device.name}
                log.warning("%s has no torch and is left out: %s", device.name, error, extra=about_it)
                del jobs[device.name]
                continue
            found[device.name] = {
                name: self._storage.store.put(graph, chunk_bytes=chunk_bytes)
                for name, graph in graphs.items()
            }
        return found

    def _widths(self, spec: SubModelSpec) -> Arrays:
        """The channels of the smaller tiers that a device of this sub-model trains too."""
        context = self._context
        groups = downlink_groups(
            context.strategy,
            self._model.state,
            spec,
            context.channel_map,
            lambda: self._model.tier_specs().values(),
        )
        return groups.get("widths", {})
