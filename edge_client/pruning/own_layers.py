"""The layers that a device keeps for itself, between rounds and in its model file."""

from collections.abc import Collection
from functools import partial

from schemas.tensors.arrays import AnyArray, ComputedArrays, GatheredArrays, kind_of, rows_of
from schemas.tensors.blobs import Arrays, Groups

OWN = "own"
"""The group of a device's private state with its own layers."""


def with_own(received: Groups, kept: Groups, layers: Collection[str]) -> Groups:
    """The received groups with the device's own arrays of these layers in `model`, where it has kept any.

    All are in the sub-model's coordinates; arrays are made when read.
    """
    model = received["model"]
    own = _of(kept.get(OWN, {}), layers)
    if not own:
        return received
    places = {name: (own, name) if name in own else (model, name) for name in model}
    return {**received, "model": GatheredArrays(places)}


def kept_own(received: Arrays, delta: Arrays, layers: Collection[str]) -> Groups:
    """The group of the trained arrays of these layers: received plus change; nothing without layers."""
    names = _of(delta, layers)
    if not names:
        return {}
    kinds = {name: kind_of(received, name) for name in names}
    return {OWN: ComputedArrays(kinds, partial(_sum, received, delta))}


def _sum(received: Arrays, delta: Arrays, name: str, start: int, stop: int) -> AnyArray:
    found: AnyArray = rows_of(received, name, start, stop) + rows_of(delta, name, start, stop)
    return found


def _of(arrays: Arrays, layers: Collection[str]) -> dict[str, AnyArray] | Arrays:
    names = [name for name in arrays if name.rpartition(".")[0] in layers]
    return GatheredArrays({name: (arrays, name) for name in names}) if names else {}
