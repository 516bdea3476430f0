"""The tiers of a run's devices: as stated, or else as their memory and speed suggest.

What each tier needs with each trainer is computed once from the server's own network, and only if a device
states no tier. No step graph is drawn for it.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from typing import Any

from torch import nn

from edge_client.models.frozen_part import split
from edge_client.pruning.surgery import count_macs
from edge_client.training.choice import PROCESS_BYTES
from edge_client.training.cost_model import NetworkCost, network_cost
from edge_client.training.step_graphs.drawing.estimate import estimate_step
from edge_client.training.step_graphs.running.memory import LowRankBytes, sizes, step_bytes
from edge_client.training.step_graphs.running.objectives.registry import why_unsupported
from edge_server.config.config import Config
from edge_server.coordinator.model_state import ModelState
from edge_server.coordinator.round_rules import make_membership
from edge_server.rounds.fleet import Device, tier_of
from edge_server.storage.recovery import Resumption
from edge_server.strategy.groups.widths import own_probability, smaller_tiers, step_share
from edge_server.strategy.planning import sends_widths
from edge_server.strategy.pruning.trained_part import ALL_TRAINED, Names, TrainedParts
from edge_server.strategy.selection import tier_evidence
from schemas import messages, values
from schemas.strategy import TrainingSettings
from schemas.submodel import SubModelSpec

Trained = Names | None  # the arrays that are trained; None for all


class WidthWork:
    """Counts the work of a run's sub-models: each shape once, and each sub-model's share once per round."""

    def __init__(self, model: ModelState) -> None:
        self._model = model
        self._own = own_probability(model.context.strategy.objectives)
        self._macs: dict[tuple[tuple[int, ...], Trained], int] = {}
        self._round, self._shares = 0, dict[tuple[str, Trained], float]()

    def macs(self, spec: SubModelSpec, trained: Trained = None) -> int:
        """Multiply-accumulates of a sub-model for one example, without the frozen layers that come before all
        of the arrays `trained`.
        """
        groups = self._model.context.channel_map.groups
        counts = tuple(spec.count(name, group.channels) for name, group in groups.items())
        if (counts, trained) not in self._macs:
            self._macs[counts, trained] = self._count_macs(spec, trained)
        return self._macs[counts, trained]

    def _count_macs(self, spec: SubModelSpec, trained: Trained) -> int:
        network = self._model.network
        if trained is None:
            return network.macs(spec)
        module = network.sub_model(self._model.params_of(spec), spec)
        return self.macs(spec) - frozen_macs(module, self._model.context.spec.input_shape, trained)

    def stays(self, trained: Trained) -> bool:
        """Whether what does not change where these arrays are trained is trained by no other tier either."""
        context = self._model.context
        return trained is not None and context.channel_map.parameters.keys() - trained == context.still

    def share(self, spec: SubModelSpec, trained: Trained = None) -> float:
        """Multiply-accumulates of a mean step over those of a step that trains all of the sub-model."""
        model = self._model
        if self._own is None or not sends_widths(model.context.strategy, model.state):
            return 1.0
        if self._round != model.state.round:
            self._round, self._shares = model.state.round, {}
        key = spec.model_dump_json(), trained
        if key not in self._shares:
            smaller = smaller_tiers(spec, model.context.channel_map, model.tier_specs().values())
            macs = [self.macs(tier, trained) for tier in smaller]
            self._shares[key] = step_share(self._own, self.macs(spec, trained), macs)
        return self._shares[key]

    def planned_share(self, spec: SubModelSpec) -> float:
        """That share where devices make up for it with further epochs, else 1."""
        return self.share(spec) if self._model.context.config.tiers.equal_work else 1.0

    def planned_share_of_tier(self, tier: int) -> float:
        """As `planned_share`, of a tier's sub-model."""
        return self.planned_share(self._model.tier_spec(self._model.context.config.tiers.ratios[tier - 1]))


def frozen_macs(module: nn.Module, input_shape: tuple[int, ...], trained: Trained) -> int:
    """Multiply-accumulates of the frozen layers that come before all of the arrays `trained`."""
    parts = None if trained is None else split(module, trained, input_shape)
    return 0 if parts is None else count_macs(module, input_shape) - count_macs(parts.rest, (parts.width,))


log = logging.getLogger(__name__)

Build = Callable[[int], nn.Module]  # From a tier, counted from 1, to its sub-model


class TierAssigner:
    """Assigns the devices of one run to tiers.

    `build` makes a tier's network; `epochs` gives the local epochs of a round, and `share` the work of a
    tier's mean step over that of a whole one where further epochs make up for it. `refusals` counts, by
    device, the tasks that were refused for lack of memory; `undecided` are the devices that state no tier.
    Without `learns` training times are ignored (for privacy). `parts` are what the tiers train.
    """

    def __init__(
        self,
        config: Config,
        build: Build,
        epochs: Callable[[int], float],
        *,
        input_shape: tuple[int, ...],
        share: Callable[[int], float] = lambda tier: 1.0,
        learns: bool = True,
        parts: TrainedParts = ALL_TRAINED,
        refusals: Mapping[str, int] | None = None,
        undecided: Iterable[str] = (),
    ) -> None:
        self._config, self._build, self._epochs, self._learns = config, build, epochs, learns
        self._input_shape, self._share, self._parts = input_shape, share, parts
        self._refusals, self._undecided = Counter(refusals or {}), set(undecided)
        self._placed: dict[str, tier_evidence.Placement] = {}
        self._policy: tier_evidence.ByEvidence | None = None

    def tier(self, device: Device) -> int:
        """The device's tier at the last planning, else the one that its memory allows."""
        placed = self._placed.get(device.name)
        found = None if placed is None else placed.tier
        labelled = self._tier_by_label(device)
        given = found if labelled is None else labelled
        return tier_of(device.profile, len(self._config.tiers.ratios), given=given)

    def _tier_by_label(self, device: Device) -> int | None:
        """The tier that the file gives the device by its labels."""
        if not self._config.tiers.by_label:
            return None
        labels = make_membership(self._config).selectable(device.name, device.labels)
        return self._config.tiers.of_labels(labels)

    def trainer(self, device: Device) -> values.TrainerName:
        """The trainer with which the device trains that tier: the best of its own that fits its memory."""
        placed = self._placed.get(device.name)
        stated = device.profile.tier is not None or self._tier_by_label(device) is not None
        if stated or placed is None or placed.trainer not in device.profile.trainers:
            return device.profile.trainers[0]
        return placed.trainer

    def place(self, devices: Iterable[Device], state: Any, number: int) -> None:
        """Assign tiers for a round to the devices that state none."""
        unstated = (device for device in devices if device.profile.tier is None)
        undecided = [device for device in unstated if self._tier_by_label(device) is None]
        self._undecided.update(device.name for device in undecided)
        if not undecided:
            return
        candidates = [self._candidate(device) for device in undecided]
        before = self._placed
        self._placed = {**before, **self._make_policy().act(state, candidates, number)}
        for name, placed in sorted(self._placed.items()):
            if before.get(name) != placed:
                log.info(
                    "%s: tier %d with %s from its memory and speed",
                    name,
                    placed.tier,
                    placed.trainer,
                    extra={"device": name},
                )

    def short_of_memory(self, device: str) -> None:
        """Count a task that the device refused for lack of memory."""
        self._refusals[device] += 1

    def observe(self, state: Any, updates: Mapping[str, tuple[messages.Update, float | None]]) -> Any:
        """Learn speeds from a round's updates, each with the ratio of its task."""
        if not self._learns:
            return state
        share = cache(self._share)
        trained = [
            tier_evidence.Trained(
                name,
                update.metrics.examples,
                update.metrics.epochs * share(self._nearest_tier(ratio)),
                update.metrics.seconds,
                ratio,
            )
            for name, (update, ratio) in updates.items()
            if name in self._undecided and ratio is not None
        ]
        return self._make_policy().observe(state, trained) if trained else state

    def _nearest_tier(self, ratio: float) -> int:
        levels = self._config.tiers.levels
        return 1 + min(range(len(levels)), key=lambda place: abs(levels[place] - ratio))

    def _candidate(self, device: Device) -> tier_evidence.Candidate:
        profile = device.profile
        return tier_evidence.Candidate(
            device.name,
            device.data.examples,
            guess=tier_of(profile, len(self._config.tiers.ratios)),
            means=tuple(_means(profile, trainer) for trainer in self._usable(profile)),
            refusals=self._refusals[device.name],
        )

    def _usable(self, profile: values.CapabilityProfile) -> tuple[values.TrainerName, ...]:
        """The device's trainers that know the run's objectives; all of them if none does."""
        if "torch" in profile.trainers and why_unsupported(self._config.strategy.objectives):
            return ("torch",)
        return profile.trainers

    def _make_policy(self) -> tier_evidence.ByEvidence:
        if self._policy is None:
            self._policy = tier_evidence.ByEvidence(
                [self.needs_of(tier) for tier in range(1, len(self._config.tiers.ratios) + 1)],
                self._config.tiers.levels,
                self._config.clients.deadline_s,
                self._epochs,
            )
        return self._policy

    def needs_of(self, tier: int) -> tier_evidence.TrainingNeeds:
        module = self._build(tier).requires_grad_(True)
        trained, plan = self._parts.of(tier), self._config.training
        cost = network_cost(module, self._input_shape, trained, self._parts.adapters_of(tier))
        frozen = frozen_macs(module, self._input_shape, trained)
        each = cost.training(plan, examples=1).data
        whole = cost.training(plan, examples=plan.batch_size)
        with_torch = tier_evidence.MemoryNeeds(whole.total - plan.batch_size * each, each)
        with_onnx = tier_evidence.MemoryNeeds(_step_graph_bytes(module, cost, plan, trained), each)
        return tier_evidence.TrainingNeeds(
            {"torch": with_torch, "onnx": with_onnx},
            # Frozen layers have no backward pass.
            macs=cost.training_macs(examples=1, epochs=1) - (values.TRAINING_PASSES - 1) * frozen,
            moved=cost.training_bytes(examples=1, epochs=1),
        )


def make_tier_assigner(model: ModelState, resume: Resumption) -> TierAssigner:
    """The tiers of a run, with the refusals and undecided devices of a resumed one."""
    context = model.context
    config = context.config_of_devices
    most_epochs = max(config.tiers.epochs_per_tier, default=config.training.local_epochs)
    return TierAssigner(
        config,
        model.sub_model,
        context.strategy.local_epochs or (lambda _: most_epochs),
        input_shape=context.spec.input_shape,
        share=WidthWork(model).planned_share_of_tier,
        learns=not context.privacy.on,
        parts=context.network.parts,
        refusals=resume.short_of_memory,
        undecided=resume.undecided,
    )


def _step_graph_bytes(
    module: nn.Module, cost: NetworkCost, plan: TrainingSettings, trained: Collection[str] | None
) -> int:
    """Bytes of a training with the module's step graph, in parts of batches, without the examples."""
    step = estimate_step(module, cost.input_shape, trained)
    part = sizes(step, plan.batch_size, cost.trained)[0]
    split = part < plan.batch_size
    low = LowRankBytes(cost.adapted, cost.factors)
    return cost.parameters + step_bytes(step, plan, cost.trained, batch=part, split=split, low=low)


def _means(profile: values.CapabilityProfile, trainer: values.TrainerName) -> tier_evidence.Means:
    measured = profile.speed_with(trainer)
    return tier_evidence.Means(trainer, _for_training(profile, trainer, measured), _speed_of(measured))


def _speed_of(measured: values.MeasuredSpeed | None) -> tier_evidence.Speed | None:
    """A device's measured speed; None unless both figures are known."""
    if measured is None or measured.training_macs_per_s is None or measured.memory_bytes_per_s is None:
        return None
    return tier_evidence.Speed(measured.training_macs_per_s, measured.memory_bytes_per_s)


def _for_training(
    profile: values.CapabilityProfile, trainer: values.TrainerName, measured: values.MeasuredSpeed | None
) -> int | None:
    """Bytes available besides the trainer's own process; None if unknown.

    An accelerator's own memory counts in place of the board's, if that has room for the process.
    """
    if profile.memory_free_bytes is None:
        return None
    resident = measured.resident_bytes if measured else None
    free = max(0, profile.memory_free_bytes - (PROCESS_BYTES[trainer] if resident is None else resident))
    card = profile.card if trainer == "torch" else None
    return free if card is None or card.free_bytes is None or not free else card.free_bytes
