"""The losses of learning tasks in torch, by the names that `edge_client.data.tasks` gives them."""

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional

from edge_client.data.tasks import metrics, registry
from edge_client.system.plugins import Registry

Loss = Callable[[Tensor, Tensor], Tensor]  # from outputs [B, L] and targets to the mean loss over the batch


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean square of differences; torch's own has a gradient that cannot be drawn for any batch size."""
    return (outputs - targets).square().mean()


LOSSES: Registry[Loss] = Registry(
    "torch-loss",
    {
        "cross-entropy": functional.cross_entropy,
        "binary-cross-entropy": functional.binary_cross_entropy_with_logits,
        "squared-error": squared_error,
    },
)


def loss_of(task: str) -> Loss:
    return metrics.loss_in(LOSSES, registry.learning_task(task))
