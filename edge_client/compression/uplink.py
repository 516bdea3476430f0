"""Encodes a device's answer with its task's codecs, and keeps the residual."""

from dataclasses import dataclass

from edge_client.compression.chain import Chain, make_chain
from edge_client.compression.decoding import MODEL
from edge_client.pruning.update_coordinates import Answer, in_global, in_sub_model
from schemas.messages import TrainTask
from schemas.submodel import ChannelMap
from schemas.tensors.blobs import Arrays, Groups

# The group of the residual, which error feedback adds to the next update; it stays on the device.
RESIDUAL = "residual"


@dataclass(frozen=True, eq=False)
class Sending:
    """The groups to send, their codecs, and what the device keeps, in global coordinates."""

    groups: Groups
    chain: Chain
    kept: Groups


def encode_answer(
    answer: Answer, delta: Arrays, task: TrainTask, channel_map: ChannelMap, previous: Groups
) -> Sending:
    """Encode the group `model` of an answer, deterministically; the other groups are sent unchanged.

    `previous` is what the device kept after its last round that counted; `ConfigError` for unknown codecs.
    """
    chain, groups = make_chain(task.uplink), answer.groups(delta)
    unsent = {RESIDUAL: previous.get(RESIDUAL, {})}
    before = in_sub_model(unsent, answer.spec, channel_map)[RESIDUAL]
    encoded = chain.encode(groups[MODEL], task.training.seed, before)
    waiting = {name: before[name] for name in before if name not in encoded.residual}
    left = {RESIDUAL: {**waiting, **encoded.residual}} if chain.sparsifier is not None else {}
    others = {name: arrays for name, arrays in groups.items() if name != MODEL}
    kept = in_global(left, unsent, answer.spec, channel_map)
    return Sending({**encoded.groups, **others}, chain, kept)
