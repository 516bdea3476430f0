"""Cohorts in pfl-research, configured as documented: FedAvg on a simulated backend, no evaluation."""

import time
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional


class Trained(nn.Module):
    """A network with the two methods that pfl requires."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Any) -> Any:
        """Class scores."""
        return self.network(x)

    def loss(self, x: Any, y: Any, eval: bool = False) -> Any:
        """Mean cross-entropy."""
        return functional.cross_entropy(self(x), y.long())

    def metrics(self, x: Any, y: Any, eval: bool = True) -> dict[str, Any]:
        """No metrics."""
        return {}


def cohort_seconds(
    network: nn.Module,
    clients: list[tuple[np.ndarray, np.ndarray]],
    device: str,
    cohort: int,
    cohorts: int,
    rate: float,
    batch: int,
) -> list[float]:
    """Wall seconds of each cohort, after a first one that is not counted; pfl chooses the device."""
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam.base import NNTrainHyperParams
    from pfl.internal.ops import pytorch_ops
    from pfl.internal.ops.selector import set_framework_module
    from pfl.model.pytorch import PyTorchModel

    set_framework_module(pytorch_ops, old_module=pytorch_ops)
    marks: list[float] = []

    class Timer(TrainingProcessCallback):  # type: ignore[misc]
        """Records when each cohort ends."""

        def after_central_iteration(self, *_: Any, **__: Any) -> tuple[bool, Any]:
            from pfl.metrics import Metrics

            if device == "cuda":
                torch.cuda.synchronize()
            marks.append(time.perf_counter())
            return False, Metrics()

    trained = Trained(network)
    model = PyTorchModel(
        trained,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(trained.parameters(), lr=1.0),
    )
    users = FederatedDataset(
        lambda user: Dataset(raw_data=list(clients[user])),
        get_user_sampler("random", list(range(len(clients)))),
    )
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=cohorts + 1,
            evaluation_frequency=cohorts + 2,
            train_cohort_size=cohort,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(training_data=users, val_data=users),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=rate, local_batch_size=batch
        ),
        callbacks=[Timer()],
    )
    return [end - begin for begin, end in pairwise(marks)]
