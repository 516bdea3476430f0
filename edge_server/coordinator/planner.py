"""Planning a round or a delivery: which devices take part, and their tasks."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np

from edge_client.data.tasks.registry import learning_task
from edge_client.pruning.channel_selection import mean_ratio
from edge_server.coordinator import exporter, network_check, tier_assignment
from edge_server.coordinator.device_graphs import DeviceGraphs, GraphBlobs
from edge_server.coordinator.model_state import ModelState
from edge_server.coordinator.run_storage import RunStorage
from edge_server.coordinator.tasks.masking import with_local_examples
from edge_server.coordinator.tasks.model_publisher import ModelPublisher
from edge_server.coordinator.tasks.task import TaskPlan, personal_training, plan_training_tasks
from edge_server.coordinator.tasks.task_assigner import TaskAssigner
from edge_server.coordinator.validation.consistency import cap_birth_claims, with_examples
from edge_server.rounds.events import ExcludedDevice, PlanRound, RoundPlanned
from edge_server.rounds.fleet import Device
from edge_server.strategy.explanations import MAX_DEVICES, DeviceChoice, RoundChoices
from edge_server.strategy.planning import plan
from edge_server.strategy.pruning.pruners import Cut
from edge_server.strategy.selection.interface import Explanation
from edge_server.strategy.selection.policies import Client
from edge_server.strategy.strategy import Plan
from schemas.capabilities import Capability
from schemas.errors import ConfigError
from schemas.strategy import Component
from schemas.tensors.chunks import CHUNK_BYTES
from schemas.values import Feature

# The record of a planning: which devices were present, which were chosen, and why.

MAX_REASON_CHARS = 500


def record_selection(
    command: PlanRound,
    ratios: Mapping[str, float],
    why: Callable[[str], Explanation],
    tier: Callable[[Device], int],
) -> RoundChoices:
    """Record a planning; `ratios` has the chosen devices.

    The chosen come first. A planning that adds devices to a round records the chosen only, since the round's
    first planning has the others.
    """
    chosen = [device for device in command.devices if device.name in ratios]
    first = command.wanted is None or command.retry == 0
    passed = (device for device in command.devices if first and device.name not in ratios)
    listed = [*chosen, *islice(passed, max(0, MAX_DEVICES - len(chosen)))][:MAX_DEVICES]
    replaced = dict(zip((device.name for device in chosen), command.places, strict=False))
    recorded = [
        DeviceChoice(
            device=device.name,
            chosen=device.name in ratios,
            because=_reason(explanation, replaced.get(device.name)),
            score=explanation.score,
            tier=tier(device),
            ratio=ratios.get(device.name),
        )
        for device, explanation in ((device, why(device.name)) for device in listed)
    ]
    excluded = islice(command.left_out, MAX_DEVICES - len(recorded))
    recorded += [_describe_excluded(device, tier) for device in excluded]
    return RoundChoices(
        attempt=command.attempt,
        round=command.round,
        devices=tuple(recorded),
        left_out=max(0, command.known - len(recorded)),
    )


def _reason(explanation: Explanation, replaced: str | None) -> str:
    prefix = f"takes the place of {replaced}, which gave its task back; " if replaced else ""
    return f"{prefix}{explanation.because}"[:MAX_REASON_CHARS]


def _describe_excluded(excluded: ExcludedDevice, tier: Callable[[Device], int]) -> DeviceChoice:
    device, because = excluded.device, excluded.because[:MAX_REASON_CHARS]
    return DeviceChoice(device=device.name, chosen=False, because=because, tier=tier(device))


log = logging.getLogger(__name__)

MAX_REASONS = 2  # Devices of which a round that nobody takes part in says why they are left out


@dataclass(frozen=True)
class Chosen:
    """What the devices of a planning do, and with which graphs; `needed` and `ended` as in `RoundPlanned`."""

    jobs: Mapping[str, TaskPlan] = field(default_factory=dict)
    graphs: GraphBlobs = field(default_factory=GraphBlobs)
    needed: int | None = None
    choices: RoundChoices | None = None
    ended: str = ""


class Planner:
    """Chooses the devices of a planning and makes their tasks.

    `journaled` are the classes and columns in the journal.
    """

    def __init__(
        self,
        model: ModelState,
        storage: RunStorage,
        assigning: TaskAssigner,
        publisher: ModelPublisher,
        tiering: tier_assignment.TierAssigner,
        early: exporter.EarlyGraphs,
        *,
        journaled: tuple[tuple[str, ...], tuple[Feature, ...]],
    ) -> None:
        self._context, self._model, self._storage = model.context, model, storage
        self._assigning, self._publisher, self._tiering = assigning, publisher, tiering
        self._journaled, self._told_whole = journaled, False
        self._exaggerated: Mapping[str, str] = {}
        self._too_old: Mapping[str, str] = {}
        self._graphs, self._early = DeviceGraphs(model, storage.store, early), early
        self._work = tier_assignment.WidthWork(model)

    @property
    def left_out(self) -> Mapping[str, str]:
        """Devices that the last planning chose, and for which no graph can be drawn, with the reason."""
        return self._graphs.left_out

    def plan(self, command: PlanRound, *, chunk_bytes: int = CHUNK_BYTES) -> RoundPlanned:
        """Choose devices and make their tasks, whose blobs travel in chunks of `chunk_bytes`.

        The tasks are in the journal when this returns. Raises `ConfigError` for a network that cannot become
        ONNX, as soon as that is known.
        """
        self._name_data(command)
        if self._early.refused:
            # The run would fail after its last round.
            raise ConfigError(network_check.no_export(self._context.spec.name, self._early.refused))
        command = self._with_believed_births(self._without_unable(command))
        lasting = self._assigning.store_lasting(chunk_bytes)
        needed = {ref.digest for ref in lasting.values()}
        self._storage.forget_blobs(command.keep | needed | self._publisher.digests)
        clients, entropy = self._place_devices(command), self._entropy(command)
        if command.deliver:
            chosen = self._deliveries(command, chunk_bytes)
        else:
            chosen = self._trainings(command, clients, entropy, chunk_bytes)
        if chosen.ended:
            return RoundPlanned(command.attempt, {}, ended=chosen.ended)
        assignments = self._assigning.assign(
            command,
            chosen.jobs,
            self._model.state,
            state_sha256=self._model.sha256,
            lasting=lasting,
            tiers=lambda: self._model.tier_specs().values(),
            graphs=chosen.graphs,
        )
        self._storage.journal.write_planning(
            command.attempt,
            command.round,
            assignments,
            devices=command.devices,
            clients=_describe_clients(clients),
            needed=chosen.needed,
            rng=entropy,
            deliver=command.deliver,
            choices=chosen.choices,
        )
        left_out = {**self._too_old, **self._graphs.left_out}
        why = "; ".join(f"{name}: {words}" for name, words in list(left_out.items())[:MAX_REASONS])
        return RoundPlanned(command.attempt, assignments, chosen.needed, left_out=why)

    def _place_devices(self, command: PlanRound) -> list[Client]:
        self._tiering.place(command.devices, self._model.state.paces, command.round)
        return [
            Client(device.name, self._tiering.tier(device), device.data.examples)
            for device in command.devices
        ]

    def _deliveries(self, command: PlanRound, chunk_bytes: int) -> Chosen:
        jobs = {device.name: self._delivery(device) for device in command.devices}
        graphs = self._graphs.draw_delivered(
            jobs, chunk_bytes, without_torch=self._personal_objectives(command, jobs)
        )
        return Chosen(jobs, graphs)

    def _trainings(
        self, command: PlanRound, clients: Sequence[Client], entropy: tuple[int, ...], chunk_bytes: int
    ) -> Chosen:
        """The training of the devices that the strategy chooses, as far as the run's privacy allows it."""
        self._model.add_clients(_describe_clients(clients))
        jobs, needed, choices = self._training(command, clients, np.random.default_rng(entropy))
        if ended := self._context.privacy.over_budget(self._model.state):
            return Chosen(ended=ended)
        jobs = self._kept_private(jobs, command)
        self._say_what_runs_whole(jobs)
        graphs = self._graphs.for_training(jobs, command.devices, chunk_bytes, self._tiering.trainer)
        return Chosen(jobs, graphs, None if needed is None else min(needed, len(jobs)), choices)

    def _say_what_runs_whole(self, jobs: Mapping[str, TaskPlan]) -> None:
        """Log once why devices run frozen layers in every step, if they do."""
        # Imported here, as it takes torch: a server of statistics needs none.
        from edge_client.training.evaluation import why_whole

        cuts = (job.cut for job in jobs.values())
        partly = [cut.objectives for cut in cuts if cut.train and cut.trained is not None]
        why = ""
        if partly:
            learnt = learning_task(self._context.spec.task)
            why = why_whole(partly[0], learnt, self._context.config.training.augment)
        if why and not self._told_whole:
            self._told_whole = True
            log.warning("devices run frozen layers in every step: %s", why)

    def _name_data(self, command: PlanRound) -> None:
        """Write what devices have agreed on to disk before any of them trains by it."""
        testing = self._context.testing
        agreed = (command.classes or testing.classes, command.columns or testing.columns)
        if (command.classes or command.columns) and agreed != self._journaled:
            self._storage.journal.write_agreed_lists(*agreed)
            self._journaled = agreed
        if agreed != (testing.classes, testing.columns):
            testing.agree(*agreed)
            self._assigning.set_preprocessing(testing.preprocessing)

    def _without_unable(self, command: PlanRound) -> PlanRound:
        """The planning without devices whose births do not state what the tasks ask for."""
        known = self._too_old
        reasons = {device.name: self._too_old_for(device) for device in command.devices}
        self._too_old = {name: why for name, why in reasons.items() if why}
        for name, why in self._too_old.items():
            if name not in known:
                log.warning("%s is left out: %s", name, why, extra={"device": name})
        unable = [device for device in command.devices if device.name in self._too_old]
        excluded = (ExcludedDevice(device, f"left out: {self._too_old[device.name]}") for device in unable)
        able = tuple(device for device in command.devices if device.name not in self._too_old)
        return replace(command, devices=able, left_out=(*excluded, *command.left_out))

    def _too_old_for(self, device: Device) -> str:
        """What a device's version does not know of this run; empty if nothing."""
        if self._model.fixed and Capability.TAKES_FIXED not in device.can:
            drawn = next(iter(self._model.fixed))
            return f"its edge-federation is too old for a network that draws '{drawn}': update it"
        if any(self._context.network.parts.tiers) and Capability.TRAINS_PARTS not in device.can:
            return "its edge-federation is too old to train a part of a network: update it"
        if any(self._context.network.parts.adapters) and Capability.ADAPTS not in device.can:
            return "its edge-federation is too old to train changes of low rank: update it"
        if self._context.testing.preprocessing.resizing is not None and Capability.RESIZES not in device.can:
            return "its edge-federation is too old to resize pictures as the network knows them: update it"
        return ""

    def _with_believed_births(self, command: PlanRound) -> PlanRound:
        """The planning with each device's claims capped, its mirror images counted as examples."""
        devices, exaggerated = cap_birth_claims(command.devices, self._context.strategy.claims)
        copies = self._context.config.training.copies
        for name, words in exaggerated.items():
            if self._exaggerated.get(name) != words:
                log.warning("%s: %s", name, words, extra={"device": name})
        self._exaggerated = exaggerated
        mirrored = (with_examples(device, copies * device.data.examples) for device in devices)
        return replace(command, devices=tuple(mirrored))

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
        self._model.state = privacy.with_plan(self._model.state, planned, population=len(clients))
        tiers = {client.name: client.tier for client in clients}
        # Devices that join an open round do not change how many updates it needs.
        needed = planned.needed if command.wanted is None else None
        jobs = plan_training_tasks(
            planned,
            tiers,
            self._context.config,
            number=command.round,
            share=self._work.planned_share,
            one_rate={each.name for each in command.devices if Capability.RATES_BY_WIDTH not in each.can},
        )
        return jobs, needed, self.explain_choices(command, clients, planned)

    def _kept_private(self, jobs: dict[str, TaskPlan], command: PlanRound) -> dict[str, TaskPlan]:
        """The jobs of devices that may take part under the run's privacy; what it has spent is on disk."""
        if self._context.privacy.on:
            # The chosen devices decide the divisor of the round's sums, also when it is computed again.
            self._model.save_checkpoint(durable=self._context.durable)
        masked = self._context.config.privacy.secure_aggregation
        return with_local_examples(jobs, command.devices) if masked else jobs

    def explain_choices(
        self, command: PlanRound, clients: Sequence[Client], planned: Plan
    ) -> RoundChoices | None:
        """Why these devices were chosen; None with differential privacy, which keeps the choice secret."""
        if self._context.privacy.on:
            return None
        ratios = {name: assignment.ratio for name, assignment in planned.assignments.items()}
        selection = self._context.strategy.selection
        why = selection.explain(self._model.state.selection, clients, frozenset(ratios))
        return record_selection(command, ratios, why, self._tiering.tier)

    def _personal_objectives(
        self, command: PlanRound, jobs: Mapping[str, TaskPlan]
    ) -> dict[str, tuple[Component, ...]]:
        """The objectives of devices that train a delivered model on their own data without torch."""
        config, spec = self._context.config, self._context.spec
        names = [each.name for each in command.devices if self._tiering.trainer(each) == "onnx"]
        trainings = {name: personal_training(config, spec, command.round, name, jobs[name]) for name in names}
        return {name: fields["personalise"].objectives for name, fields in trainings.items() if fields}

    def _delivery(self, device: Device) -> TaskPlan:
        tier, network = self._tiering.tier(device), self._context.network
        ratio = self._context.config.tiers.ratios[tier - 1]
        level = mean_ratio(ratio)
        provenance = self._model.provenance(tier, level)
        trained = network.parts.in_order(tier, network.registered_map)
        adapters = network.parts.adapters_of(tier)
        cut = Cut(
            self._model.tier_spec(ratio), trained=trained, adapters=adapters, own=self._context.own_layers
        )
        return TaskPlan(tier, cut, level, provenance=provenance)


def _describe_clients(clients: Sequence[Client]) -> dict[str, tuple[int, int]]:
    """Tier and examples of each device, as the state keeps them."""
    return {client.name: (client.tier, client.examples) for client in clients}
