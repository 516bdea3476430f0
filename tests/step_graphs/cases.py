"""The trainings that are compared, with their networks, data, and groups of a second round."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from edge_client.data.dataset import LabelledData
from edge_client.data.sources import load_source
from edge_client.models.build import build_model
from edge_client.models.registry import MODELS, entry
from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.pruning.channel_selection import group_ratios, prefix_spec
from edge_client.pruning.index_sets import extract
from edge_client.pruning.surgery import arrays_of, compact, load_arrays
from edge_server.strategy.pruning.pruners import target_layers
from schemas.strategy import Component, TrainingPlan
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.arrays import Groups
from schemas.values import ModelSpec
from tests.training_memory.measured import RATIOS, SHAPES

CLASSES = 10
BATCH = 32
EXAMPLES = 150  # the last batch of an epoch is a short one
EPOCHS = 4
STEPS = EPOCHS * -(-EXAMPLES // BATCH)
DEEP = ("mobilenet", "resnet")  # how the names of the deep networks begin
TIERS = tuple(range(1, len(RATIOS) + 1))

OPTIMIZERS: Mapping[str, Mapping[str, Any]] = {
    "sgd": {"learning_rate": 0.01},
    "momentum": {"learning_rate": 0.01, "momentum": 0.9, "weight_decay": 0.0005, "sam_radius": 0.1},
    "adam": {"optimizer": "adam", "learning_rate": 0.001},
    "adamw": {"optimizer": "adamw", "learning_rate": 0.001, "weight_decay": 0.01},
}
OBJECTIVES = ("plain", "prox", "scaffold", "igfl", "masked-loss", "scaler", "attentive")
"""`attentive` trains whole networks, which are those of the last tier."""


@dataclass(frozen=True)
class Case:
    """One training."""

    model: str
    tier: int
    objective: str = "plain"
    optimizer: str = "sgd"


@dataclass(frozen=True, eq=False)
class Network:
    """A tier's sub-model with its numbers, and the channels of the whole network."""

    model: ModelSpec
    spec: SubModelSpec
    channels: ChannelMap
    whole: nn.Module
    arrays: dict[str, NDArray[Any]]

    def module(self) -> nn.Module:
        """The sub-model in torch, with arrays of its own."""
        module = compact(self.whole, self.spec, self.channels)
        load_arrays(module, self.arrays)
        return module


def every_case() -> list[Case]:
    """Every shipped network with every tier, objective and optimizer."""
    return [
        Case(model, tier, objective, optimizer)
        for model in SHAPES
        if model in MODELS
        for tier in TIERS
        for objective in OBJECTIVES
        if objective != "attentive" or tier == TIERS[-1]
        for optimizer in OPTIMIZERS
    ]


def small_network(model: str, tier: int) -> Network:
    """The network for quarters of pictures if it is a deep one: the same layers in a quarter of the time."""
    shape = SHAPES[model]
    return network(model, tier, (shape[0], 16, 16) if model.startswith(DEEP) else shape)


@lru_cache(maxsize=2)
def network(model: str, tier: int, shape: tuple[int, ...] | None = None) -> Network:
    """A network's tier with random weights; without dropout, whose masks are drawn differently in torch."""
    spec = ModelSpec(name=model, input_shape=shape or SHAPES[model], num_classes=CLASSES)
    torch.manual_seed(0)
    whole = build_model(spec)
    for part in whole.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    channels = trace_channels(whole, spec.input_shape)
    cut = prefix_spec(group_ratios(entry(model), RATIOS[tier - 1], channels), channels)
    taken = extract(arrays_of(whole), cut, channels)
    return Network(spec, cut, channels, whole, {name: np.array(taken[name]) for name in taken})


@lru_cache
def examples(shape: tuple[int, ...]) -> LabelledData:
    """The first handwritten digits that scikit-learn has, in that shape, and noise.

    Without noise equal pixels lead to equal maxima in a pool, and rounding decides whose gradient counts.
    """
    digits = load_source("digits").subset(range(EXAMPLES))
    rows = np.arange(shape[-1]) * digits.images.shape[-1] // shape[-1]
    enlarged = np.repeat(digits.images[:, :, rows][:, :, :, rows], shape[0], axis=1).astype(np.float32)
    noise = np.random.default_rng(0).normal(size=enlarged.shape)
    return replace(digits, images=(enlarged / enlarged.max() + 0.3 * noise).astype(np.float32))


def objectives(case: Case) -> tuple[Component, ...]:
    """The objectives of the case's plan."""
    if case.objective == "plain":
        return ()
    options: dict[str, Any] = {"prox": {"mu": 0.1}}.get(case.objective, {})
    if case.objective == "attentive":
        channels = network(case.model, case.tier).channels
        options["layers"] = target_layers(group_ratios(entry(case.model), RATIOS[0], channels), channels)
    return (Component(name=case.objective, options=options),)


def plan(case: Case) -> TrainingPlan:
    """The case's plan of `STEPS` steps."""
    return TrainingPlan(
        # Cases with the same batches would meet the same unit whose input is 0 but for rounding.
        seed=zlib.crc32(repr(case).encode()),
        batch_size=BATCH,
        local_epochs=EPOCHS,
        participants=10,
        objectives=objectives(case),
        **OPTIMIZERS[case.optimizer],
    )


def received(case: Case, found: Network) -> tuple[Groups, Groups]:
    """The groups that a device receives and those that it has kept, as in a second round."""
    random = np.random.default_rng(1)
    parameters = dict(found.module().named_parameters())

    def small() -> dict[str, NDArray[Any]]:
        return {
            name: (0.001 * random.standard_normal(weight.shape)).astype(np.float32)
            for name, weight in parameters.items()
        }

    groups: dict[str, tuple[Groups, Groups]] = {
        "scaffold": ({"control": small()}, {"own-control": small()}),
        "igfl": ({"last-step": small()}, {"own-step": small()}),
    }
    given, kept = groups.get(case.objective, ({}, {}))
    return {"model": found.arrays, **given}, kept
