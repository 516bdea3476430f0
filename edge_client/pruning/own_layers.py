"""The layers that a device keeps for itself, between rounds and in its model file."""

from collections.abc import Collection
from functools import partial

import numpy as np

from schemas.tensors.arrays import AnyArray, ComputedArrays, GatheredArrays, add_changes, kind_of, rows_of
from schemas.tensors.blobs import Arrays, Groups

# The groups of a device's private state with its own layers, and with what of them it has ever held.
OWN, HELD = "own", "own-held"
# The group with the model towards which a training is pulled, where that is not the model it starts from.
ANCHOR = "anchor"


def with_own(received: Groups, kept: Groups, layers: Collection[str]) -> Groups:
    """The received groups with the device's own arrays of these layers in `model`, where it has kept any.

    Channels that the device never held have the received values. All arrays are in the sub-model's
    coordinates, and made when read.
    """
    model, own = received["model"], arrays_of_layers(kept.get(OWN, {}), layers)
    if not own:
        return received
    kinds = {name: kind_of(model, name) for name in own}
    mixed = ComputedArrays(kinds, partial(_where, kept[HELD], own, model))
    places = {name: (mixed, name) if name in own else (model, name) for name in model}
    return {**received, "model": GatheredArrays(places)}


def kept_own(received: Arrays, delta: Arrays, layers: Collection[str]) -> Groups:
    """The groups of the trained arrays of these layers, received plus change; nothing without layers."""
    change = arrays_of_layers(delta, layers)
    if not change:
        return {}
    own = add_changes(received, change)
    return {OWN: own, HELD: {name: np.ones(own.kind(name)[1], bool) for name in own}}


def _where(held: Arrays, own: Arrays, model: Arrays, name: str, start: int, stop: int) -> AnyArray:
    return np.where(*[rows_of(arrays, name, start, stop) for arrays in (held, own, model)])


def arrays_of_layers(arrays: Arrays, layers: Collection[str]) -> Arrays:
    return GatheredArrays({name: (arrays, name) for name in arrays if name.rpartition(".")[0] in layers})
