"""The floor: the same SGD steps in plain torch, in the same number of processes, and nothing else.

No messages, files, sub-models, aggregation or tests: only the training itself.
"""

import multiprocessing
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from edge_client.data.dataset import LabelledData
from edge_client.data.partition import parse_partition, partition_indices
from edge_client.data.sources import load_source
from edge_client.models.build import build_model
from edge_server.config.config import Config
from schemas.values import ModelSpec


def bare_seconds(config: Config, *, workers: int) -> float:
    """Wall seconds from the start of the processes to the end of the last step."""
    started = time.perf_counter()
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=_train_share, args=(config, index, workers)) for index in range(workers)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        if process.exitcode != 0:
            raise RuntimeError(f"a process of the bare loop ended with {process.exitcode}")
    return time.perf_counter() - started


def _train_share(config: Config, index: int, workers: int) -> None:
    """Train every `workers`-th of all the clients that the rounds select, one after the other."""
    torch.set_num_threads(1)
    data = load_source(config.data.source or "digits", data_root=config.data.data_root)
    clients = config.clients.num_clients
    partition = parse_partition(config.data.partition_spec)
    shares = partition_indices(data.labels, partition, count=clients, seed=config.federation.seed)
    spec = ModelSpec(name=config.model.name, input_shape=data.input_shape, num_classes=data.num_classes)
    module = build_model(spec, seed=0)
    start = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    selected = max(1, round(config.clients.fraction * clients))
    rng = np.random.default_rng(config.federation.seed)
    for _ in range(config.federation.rounds):
        chosen = rng.choice(clients, size=selected, replace=False)
        for client in chosen[index::workers]:
            module.load_state_dict(start)
            _train(module, data.subset(shares[client]), config)


def _train(module: nn.Module, data: LabelledData, config: Config) -> None:
    plan = config.training
    inputs, labels = torch.from_numpy(data.inputs()), torch.from_numpy(data.labels)
    optimizer = torch.optim.SGD(module.parameters(), lr=plan.learning_rate, momentum=plan.momentum)
    for _ in range(plan.local_epochs):
        for batch in torch.randperm(len(labels)).split(plan.batch_size):
            optimizer.zero_grad(set_to_none=True)
            functional.cross_entropy(module(inputs[batch]), labels[batch]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
