"""Arrays that a tier has of its own, kept under `{key}/{parameter}` in global coordinates."""

from collections.abc import Iterable

from edge_server.strategy.aggregation.updates import GlobalUpdate
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.blobs import Arrays

FULL = "full"  # the key of the full network, whose arrays are the global model's


def tier_key(spec: SubModelSpec, channel_map: ChannelMap) -> str:
    """The number of channels that a sub-model keeps of each group: equal for all devices of a tier."""
    counts = {name: spec.count(name, group.channels) for name, group in channel_map.groups.items()}
    if all(counts[name] == group.channels for name, group in channel_map.groups.items()):
        return FULL
    return ",".join(f"{name}:{count}" for name, count in sorted(counts.items()))


def arrays_of_tier(held: Arrays, spec: SubModelSpec, channel_map: ChannelMap) -> Arrays:
    """The arrays of the tier with this sub-model, by parameter; {} if it has none."""
    prefix = f"{tier_key(spec, channel_map)}/"
    return {name.removeprefix(prefix): held[name] for name in held if name.startswith(prefix)}


def by_tier(updates: Iterable[GlobalUpdate], channel_map: ChannelMap) -> dict[str, list[GlobalUpdate]]:
    tiers: dict[str, list[GlobalUpdate]] = {}
    for update in updates:
        tiers.setdefault(tier_key(update.source.spec, channel_map), []).append(update)
    return tiers
