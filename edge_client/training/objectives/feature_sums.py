"""What devices say of their features, of which the server makes a head.

FedGH (Yi et al. 2023, Heterogeneous Federated Learning with Generalized Global Header); heads in one round
are those of Fed3R (Fani et al. 2024) and FedNCM (Legate et al. 2023).
"""

from collections.abc import Iterable
from typing import ClassVar

import numpy as np

from edge_client.system.lazy_torch import Tensor, nn, torch
from edge_client.training import feature_sums
from edge_client.training.objectives.base import LocalObjective, TrainingContext, array_of
from schemas.errors import ConfigError
from schemas.tensors.arrays import Groups

BATCH = 256


class _HeadObjective(LocalObjective):
    """What needs the features of a device's examples: the inputs of the network's head in evaluation mode.

    A device without examples sends none.
    """

    def __init__(self) -> None:
        self._module: nn.Module | None = None

    def setup(self, module: "nn.Module", context: TrainingContext) -> Iterable["nn.Parameter"]:
        self._inputs, self._labels = context.inputs, context.labels
        self._originals = len(context.labels) // context.plan.copies
        self._module = module if len(context.labels) else None
        return ()

    def finish(self) -> Groups:
        if self._module is None:
            return {}
        from edge_client.models.build import header_name

        name = header_name(self._module, tuple(self._inputs.shape[1:]))
        head = self._module.get_submodule(name)
        assert isinstance(head, torch.nn.Linear)
        return self._groups(self._module, name, head)

    def _groups(self, module: "nn.Module", name: str, head: "nn.Linear") -> Groups:
        raise NotImplementedError

    def close(self) -> None:
        self._module = None


def _features(module: "nn.Module", head: "nn.Linear", inputs: "Tensor") -> "Tensor":
    """The head's inputs [B, D] for inputs [B, ...] in evaluation mode."""
    from edge_client.models.modes import evaluating

    seen: list[Tensor] = []
    hook = head.register_forward_pre_hook(lambda layer, fed: seen.append(fed[0].detach()))
    try:
        with evaluating(module), torch.no_grad():
            module(inputs)
    finally:
        hook.remove()
    return seen[-1]


class Prototypes(_HeadObjective):
    """Plain SGD, then the mean features of every class in the device's examples.

    The group `prototypes` has the means under the name of the head's weight, [classes, D], 0 for a class
    without examples, and `counts` [classes], the examples of each.
    """

    sends = frozenset({"prototypes"})
    labels = frozenset({"classes"})

    def _groups(self, module: "nn.Module", name: str, head: "nn.Linear") -> Groups:
        parts = torch.split(self._inputs, BATCH)
        features = torch.cat([_features(module, head, part).double() for part in parts])
        means, counts = class_means(features, self._labels, len(head.weight))
        return {"prototypes": {f"{name}.weight": array_of(means), "counts": array_of(counts)}}


def class_means(values: "Tensor", labels: "Tensor", classes: int) -> tuple["Tensor", "Tensor"]:
    """Means of `values` [N, D] per label [classes, D], 0 without values, and counts [classes]."""
    counts = torch.bincount(labels, minlength=classes).to(values.dtype)
    sums = values.new_zeros(classes, values.shape[1]).index_add_(0, labels, values)
    return sums / counts.clamp(min=1).unsqueeze(1), counts


class Ridge(_HeadObjective):
    """Sum the products of the head's features with each other and with the targets; nothing is trained.

    The group `feature-sums` has the sums in float64 (`edge_client.training.feature_sums`), of every example
    once. With a `clip` they are of features in units of it, of length 1 at most.
    """

    sends = frozenset({feature_sums.GROUP})
    labels = frozenset({"classes", "numbers"})
    sums: ClassVar[bool] = True
    bounds_examples: ClassVar[bool] = True
    group: ClassVar[str] = feature_sums.GROUP

    def __init__(self, *, clip: float | None = None) -> None:
        super().__init__()
        if clip is not None and not 0 < clip < float("inf"):
            raise ConfigError("clip must be above 0", key="[privacy] clip")
        self._clip = clip

    def _groups(self, module: "nn.Module", name: str, head: "nn.Linear") -> Groups:
        def project(batch: feature_sums.Array) -> feature_sums.Array:
            features = _features(module, head, torch.from_numpy(batch).to(self._inputs))
            return np.asarray(features.float().cpu().numpy())

        parts = (torch.split(tensor, feature_sums.BATCH) for tensor in (self._inputs, self._labels))
        sums = feature_sums.sum_features(
            project,
            ((own.cpu().numpy(), wanted.cpu().numpy()) for own, wanted in zip(*parts, strict=True)),
            len(head.weight),
            gram=self.group == feature_sums.GROUP,
            clip=self._clip,
            originals=self._originals,
        )
        return {self.group: feature_sums.of_head(name, sums)}


class ClassMeans(Ridge):
    """Sum the head's features of each class; nothing is trained.

    As `ridge`, with the sums of features and targets alone: one row of features per class, in the group
    `class-sums`.
    """

    sends = frozenset({feature_sums.MEANS_GROUP})
    labels = frozenset({"classes"})
    group: ClassVar[str] = feature_sums.MEANS_GROUP
