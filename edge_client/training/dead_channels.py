"""Channels of hidden layers that no example reaches any more, read off a training's result."""

from collections.abc import Collection

from schemas.submodel import ChannelMap
from schemas.tensors.arrays import Arrays, blocks, kind_of, rows_of

DEAD_CHANNELS = "dead-channels"  # a figure among a device's metrics, sent from `MAX_DEAD` on
MAX_DEAD = 0.75  # share of a layer's channels that good trainings stay below


def dead_share(delta: Arrays, channel_map: ChannelMap, trained: Collection[str] | None = None) -> float:
    """The share of dead channels in the hidden layer with most of them; `delta` is trained minus received.

    A channel that its ReLU cuts off for every example gets no gradient, and its weights stay where they were
    (but for weight decay, which hides it). A layer of which nothing moved is not trained, and has none; of
    those, only `trained` arrays are read where that is known.
    """
    names = {f"{layer}.weight" for group in channel_map.groups.values() for layer in group.layers}
    shares = list[float]()
    for name in sorted(names & delta.keys() if trained is None else names & delta.keys() & set(trained)):
        kind = kind_of(delta, name)
        parts = (rows_of(delta, name, start, stop) for start, stop in blocks(kind))
        moved = sum(int(part.reshape(len(part), -1).any(axis=1).sum()) for part in parts)
        shares.append(1 - moved / kind[1][0])
    return max((share for share in shares if share < 1), default=0.0)
