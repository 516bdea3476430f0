"""Assign devices to groups: the same for the same devices and version, with every tier spread over all."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping

Group = tuple[str, ...]


def groups_of(tiers: Mapping[str, int], version: str, *, canary: int, groups: int) -> tuple[Group, ...]:
    """Split the devices with these `tiers` into groups: `canary` of them first, the rest in equal parts.

    Another version has other devices in the canary. Groups contain devices of every tier if they are large
    enough, so that a fault in one tier's model shows early.
    """
    ordered = _in_order(tiers, version)
    first, rest = ordered[:canary], ordered[canary:]
    return tuple(group for group in (first, *_parts(rest, groups)) if group)


def missing_tiers(tiers: Mapping[str, int], group: Iterable[str]) -> tuple[int, ...]:
    """The tiers of devices that have none in this group."""
    return tuple(sorted(set(tiers.values()) - {tiers[device] for device in group}))


def _in_order(tiers: Mapping[str, int], version: str) -> Group:
    """Devices in a reproducible random order; every prefix has about the same share of each tier."""
    of_tier: dict[int, list[str]] = defaultdict(list)
    for device in sorted(tiers, key=lambda name: _lot(name, version)):
        of_tier[tiers[device]].append(device)
    place = {
        device: ((rank + 0.5) / len(devices), _lot(device, version))
        for devices in of_tier.values()
        for rank, device in enumerate(devices)
    }
    return tuple(sorted(tiers, key=place.__getitem__))


def _lot(device: str, version: str) -> str:
    return hashlib.sha256(f"{version}/{device}".encode()).hexdigest()


def _parts(devices: Group, count: int) -> Iterable[Group]:
    size, more = divmod(len(devices), count)
    begin = 0
    for number in range(count):
        end = begin + size + (number < more)
        yield devices[begin:end]
        begin = end
