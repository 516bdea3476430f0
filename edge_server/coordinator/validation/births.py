"""What births say, held to what is usual before any planning goes by it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from edge_server.rounds.fleet import Device
from edge_server.strategy.weighting.claims import Claims


def cap_birth_claims(devices: Iterable[Device], claims: Claims) -> tuple[tuple[Device, ...], dict[str, str]]:
    """The devices with no more examples, and free memory, than may count; in words what was cut of whom."""
    devices = tuple(devices)
    most = claims.examples(device.data.examples for device in devices)
    held = tuple(_with_memory(_with_examples(device, most)) for device in devices)
    cut = {
        said.name: f"{said.data.examples} examples in its birth count as {device.data.examples}"
        for said, device in zip(devices, held, strict=True)
        if device.data is not said.data
    }
    return held, cut


def _with_examples(device: Device, most: float) -> Device:
    if device.data.examples <= most:
        return device
    return replace(device, data=device.data.model_copy(update={"examples": int(most)}))


def _with_memory(device: Device) -> Device:
    """What a process could still take is at most what there is for it, where that is known."""
    profile = device.profile
    if not 0 < profile.memory_bytes < (profile.memory_free_bytes or 0):
        return device
    return replace(device, profile=profile.model_copy(update={"memory_free_bytes": profile.memory_bytes}))
