"""Encodes a device's answer with its task's codecs, and keeps the residual."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from edge_client.compression.chain import Chain, make_chain
from edge_client.compression.decoding import LEFT, MODEL, RIGHT
from edge_client.compression.low_rank import Factors
from edge_client.pruning.update_coordinates import Answer, in_global, in_sub_model
from schemas import messages, submodel
from schemas.tensors.arrays import Arrays, GatheredArrays, Groups

# The group of the residual, which error feedback adds to the next update; it stays on the device.
RESIDUAL = "residual"


@dataclass(frozen=True, eq=False)
class Sending:
    """The groups to send, their codecs, and what the device keeps, in global coordinates."""

    groups: Groups
    chain: Chain
    kept: Groups


def encode_answer(
    answer: Answer,
    delta: Arrays,
    task: messages.TrainTask,
    channel_map: submodel.ChannelMap,
    previous: Groups,
    factors: Mapping[str, Factors] | None = None,
) -> Sending:
    """Encode the group `model` of an answer, deterministically; the other groups are sent unchanged.

    The `factors` of changes of low rank take their place, as far as the task wants them. `previous` is what
    the device kept after its last round that counted; `ConfigError` for unknown codecs.
    """
    chain, groups = make_chain(task.uplink), answer.groups(delta)
    unsent = {RESIDUAL: previous.get(RESIDUAL, {})}
    before = in_sub_model(unsent, answer.spec, channel_map)[RESIDUAL]
    held = {
        name: pair for name, pair in (factors or {}).items() if name in task.factor_names & {*groups[MODEL]}
    }
    whole = GatheredArrays({name: (groups[MODEL], name) for name in groups[MODEL] if name not in held})
    encoded = chain.encode(whole if held else groups[MODEL], task.training.seed, before)
    waiting = {name: before[name] for name in before if name not in encoded.residual}
    left = {RESIDUAL: {**waiting, **encoded.residual}} if chain.sparsifier is not None else {}
    others = {name: arrays for name, arrays in groups.items() if name != MODEL}
    kept = in_global(left, unsent, answer.spec, channel_map)
    return Sending({**encoded.groups, **_in_groups(held, chain, task.training.seed), **others}, chain, kept)


def _in_groups(factors: Mapping[str, Factors], chain: Chain, seed: int) -> Groups:
    """The groups of the factors; each row of a factor is one of the r terms of the product.

    Both are rounded independently of each other, so that the product has no bias.
    """
    if not factors:
        return {}
    sides = {
        LEFT: {name: np.ascontiguousarray(pair.left.T) for name, pair in factors.items()},
        RIGHT: {name: pair.right for name, pair in factors.items()},
    }
    return {
        side + group.removeprefix(MODEL): arrays
        for place, (side, sent) in enumerate(sides.items())
        for group, arrays in chain.of_factors.encode(sent, seed + place).groups.items()
    }
