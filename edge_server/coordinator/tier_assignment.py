"""The tiers of a run's devices: as stated, or else as their memory and speed suggest.

What each tier needs is computed once from the server's own network, and only if a device states no tier.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import nn

from edge_client.training.cost_model import network_cost
from edge_server.config.config import Config
from edge_server.coordinator.model_state import ModelState
from edge_server.rounds.fleet import Device
from edge_server.rounds.tiers import tier_of
from edge_server.storage.recovery import Resumption
from edge_server.strategy.selection.tier_evidence import ByEvidence, Candidate, Speed, Trained, TrainingNeeds
from schemas.messages import Update
from schemas.values import CapabilityProfile, MeasuredSpeed

log = logging.getLogger(__name__)

LIBRARIES = 270_000_000
"""Bytes of an idle training process, unless its device has measured them."""

Build = Callable[[int], nn.Module]
"""From a tier, counted from 1, to its sub-model."""


class TierAssigner:
    """Assigns the devices of one run to tiers.

    `build` makes a tier's network; `epochs` gives the local epochs of a round. `refusals` counts, by device,
    the tasks that were refused for lack of memory; `undecided` are the devices that state no tier. Without
    `learns` training times are ignored (for privacy).
    """

    def __init__(
        self,
        config: Config,
        build: Build,
        epochs: Callable[[int], float],
        *,
        input_shape: tuple[int, ...],
        learns: bool = True,
        refusals: Mapping[str, int] | None = None,
        undecided: Iterable[str] = (),
    ) -> None:
        self._config, self._build, self._epochs, self._learns = config, build, epochs, learns
        self._input_shape = input_shape
        self._refusals, self._undecided = Counter(refusals or {}), set(undecided)
        self._placed: dict[str, int] = {}
        self._policy: ByEvidence | None = None

    def tier(self, device: Device) -> int:
        """The device's tier at the last planning, else the one that its memory allows."""
        return tier_of(device.profile, len(self._config.tiers.ratios), given=self._placed.get(device.name))

    def place(self, devices: Iterable[Device], state: Any, number: int) -> None:
        """Assign tiers for a round to the devices that state none."""
        undecided = [device for device in devices if device.profile.tier is None]
        self._undecided.update(device.name for device in undecided)
        if not undecided:
            return
        candidates = [self._candidate(device) for device in undecided]
        before = self._placed
        self._placed = {**before, **self._made().act(state, candidates, number)}
        for name, tier in sorted(self._placed.items()):
            if before.get(name) != tier:
                about_it = {"device": name}
                log.info("%s: tier %d from its memory and speed", name, tier, extra=about_it)

    def short_of_memory(self, device: str) -> None:
        """Count a task that the device refused for lack of memory."""
        self._refusals[device] += 1

    def observe(self, state: Any, updates: Mapping[str, tuple[Update, float | None]]) -> Any:
        """Learn speeds from a round's updates, each with the ratio of its task."""
        trained = [
            Trained(name, update.metrics.examples, update.metrics.epochs, update.metrics.seconds, ratio)
            for name, (update, ratio) in updates.items()
            if name in self._undecided and ratio is not None
        ]
        return self._made().observe(state, trained) if trained and self._learns else state

    def _candidate(self, device: Device) -> Candidate:
        profile = device.profile
        return Candidate(
            device.name,
            device.data.examples,
            guess=tier_of(profile, len(self._config.tiers.ratios)),
            free=_for_training(profile),
            speed=_speed(profile.speed),
            refusals=self._refusals[device.name],
        )

    def _made(self) -> ByEvidence:
        if self._policy is None:
            self._policy = ByEvidence(
                [self._needs_of(tier) for tier in range(1, len(self._config.tiers.ratios) + 1)],
                self._config.tiers.levels,
                self._config.clients.deadline_s,
                self._epochs,
            )
        return self._policy

    def _needs_of(self, tier: int) -> TrainingNeeds:
        cost = network_cost(self._build(tier).requires_grad_(True), self._input_shape)
        plan = self._config.training
        batch = cost.training(plan, examples=plan.batch_size)
        more = cost.training(plan, examples=plan.batch_size + 1)
        each = more.data - batch.data
        return TrainingNeeds(
            batch.total - plan.batch_size * each,
            each,
            macs=cost.training_macs(examples=1, epochs=1),
            moved=cost.training_bytes(examples=1, epochs=1),
        )


def make_tier_assigner(model: ModelState, resume: Resumption) -> TierAssigner:
    """The tiers of a run, with the refusals and undecided devices of a resumed one."""
    context = model.context
    config = context.config
    most_epochs = max(config.tiers.epochs_per_tier, default=config.training.local_epochs)
    return TierAssigner(
        config,
        model.sub_model,
        context.strategy.local_epochs or (lambda _: most_epochs),
        input_shape=context.spec.input_shape,
        learns=not context.privacy.on,
        refusals=resume.short_of_memory,
        undecided=resume.undecided,
    )


def _speed(measured: MeasuredSpeed | None) -> Speed | None:
    """A device's measured speed; None unless both figures are known."""
    if measured is None or measured.training_macs_per_s is None or measured.memory_bytes_per_s is None:
        return None
    return Speed(measured.training_macs_per_s, measured.memory_bytes_per_s)


def _for_training(profile: CapabilityProfile) -> int | None:
    """Bytes available for training; None if unknown."""
    if profile.memory_free_bytes is None:
        return None
    measured = profile.speed.resident_bytes if profile.speed else None
    return max(0, profile.memory_free_bytes - (LIBRARIES if measured is None else measured))
