"""FedGH's client (Yi et al. 2023, Heterogeneous Federated Learning with Generalized Global Header)."""

from collections.abc import Iterable

from edge_client.system.lazy_torch import Tensor, nn, torch
from edge_client.training.objectives.base import LocalObjective, TrainingContext, array_of
from schemas.tensors.arrays import Groups

BATCH = 256


class Prototypes(LocalObjective):
    """Plain SGD, then the mean representation of every class in the device's examples.

    A representation is the input of the trained network's header in evaluation mode. The group `prototypes`
    has the means under the name of the header's weight, [classes, D], 0 for a class without examples, and
    `counts` [classes], the examples of each. A device without examples sends none.
    """

    sends = frozenset({"prototypes"})
    labels = frozenset({"classes"})

    def __init__(self) -> None:
        self._module: nn.Module | None = None
        self._header = ""

    def setup(self, module: "nn.Module", context: TrainingContext) -> Iterable["nn.Parameter"]:
        from edge_client.models.header import header_name

        self._inputs, self._labels = context.inputs, context.labels
        if len(context.labels):
            self._module = module
            self._header = header_name(module, tuple(context.inputs.shape[1:]))
        return ()

    def finish(self) -> Groups:
        if self._module is None:
            return {}
        header = self._module.get_submodule(self._header)
        assert isinstance(header, torch.nn.Linear)
        means, counts = class_means(
            _representations(self._module, header, self._inputs), self._labels, len(header.weight)
        )
        return {"prototypes": {f"{self._header}.weight": array_of(means), "counts": array_of(counts)}}

    def close(self) -> None:
        self._module = None


def class_means(values: "Tensor", labels: "Tensor", classes: int) -> tuple["Tensor", "Tensor"]:
    """Means of `values` [N, D] per label [classes, D], 0 without values, and counts [classes]."""
    counts = torch.bincount(labels, minlength=classes).to(values.dtype)
    sums = values.new_zeros(classes, values.shape[1]).index_add_(0, labels, values)
    return sums / counts.clamp(min=1).unsqueeze(1), counts


def _representations(module: "nn.Module", header: "nn.Linear", inputs: "Tensor") -> "Tensor":
    """The header's inputs [N, D] for every input [N, ...], in double precision."""
    from edge_client.models.modes import evaluating

    seen: list[Tensor] = []
    hook = header.register_forward_pre_hook(lambda layer, fed: seen.append(fed[0].double()))
    try:
        with evaluating(module), torch.no_grad():
            for part in torch.split(inputs, BATCH):
                module(part)
    finally:
        hook.remove()
    return torch.cat(seen)
