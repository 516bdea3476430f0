"""Heads in one round: sums of a device's features (Fed3R, Fani et al. 2024; FedNCM, Legate et al. 2023)."""

from collections.abc import Iterable
from typing import ClassVar

import numpy as np

from edge_client.system.lazy_torch import Tensor, nn, torch
from edge_client.training import feature_sums
from edge_client.training.objectives.base import LocalObjective, TrainingContext
from schemas.errors import ConfigError
from schemas.tensors.arrays import Groups


class Ridge(LocalObjective):
    """Sum the products of the head's features with each other and with the targets; nothing is trained.

    The features are the head's inputs in evaluation mode, of every example once. The group `feature-sums` has
    the sums in float64 (`edge_client.training.feature_sums`); a device without examples sends none. With a
    `clip` they are of features in units of it, of length 1 at most.
    """

    sends = frozenset({feature_sums.GROUP})
    labels = frozenset({"classes", "numbers"})
    sums: ClassVar[bool] = True
    bounds_examples: ClassVar[bool] = True
    group: ClassVar[str] = feature_sums.GROUP

    def __init__(self, *, clip: float | None = None) -> None:
        if clip is not None and not 0 < clip < float("inf"):
            raise ConfigError("clip must be above 0", key="[privacy] clip")
        self._clip = clip
        self._module: nn.Module | None = None

    def setup(self, module: "nn.Module", context: TrainingContext) -> Iterable["nn.Parameter"]:
        self._inputs, self._targets = context.inputs, context.labels
        self._module = module if len(context.labels) else None
        return ()

    def finish(self) -> Groups:
        if self._module is None:
            return {}
        from edge_client.models.header import header_name

        module, inputs = self._module, self._inputs
        name = header_name(module, tuple(inputs.shape[1:]))
        head = module.get_submodule(name)
        assert isinstance(head, torch.nn.Linear)
        parts = (torch.split(tensor, feature_sums.BATCH) for tensor in (inputs, self._targets))
        sums = feature_sums.sum_features(
            lambda batch: _features(module, head, torch.from_numpy(batch).to(inputs)),
            ((own.cpu().numpy(), wanted.cpu().numpy()) for own, wanted in zip(*parts, strict=True)),
            len(head.weight),
            gram=self.group == feature_sums.GROUP,
            clip=self._clip,
        )
        return {self.group: feature_sums.of_head(name, sums)}

    def close(self) -> None:
        self._module = None


class ClassMeans(Ridge):
    """Sum the head's features of each class; nothing is trained.

    As `ridge`, with the sums of features and targets alone: one row of features per class, in the group
    `class-sums`.
    """

    sends = frozenset({feature_sums.MEANS_GROUP})
    labels = frozenset({"classes"})
    group: ClassVar[str] = feature_sums.MEANS_GROUP


def _features(module: "nn.Module", head: "nn.Linear", inputs: "Tensor") -> feature_sums.Array:
    """The head's inputs [B, D] for inputs [B, ...] in evaluation mode."""
    from edge_client.models.modes import evaluating

    seen: list[Tensor] = []
    hook = head.register_forward_pre_hook(lambda layer, fed: seen.append(fed[0].detach()))
    try:
        with evaluating(module), torch.no_grad():
            module(inputs)
    finally:
        hook.remove()
    return np.asarray(seen[-1].float().cpu().numpy())
