"""Caps what births claim, before a planning uses it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from edge_server.rounds.fleet import Device
from edge_server.strategy.weighting.claims import Claims


def cap_birth_claims(devices: Iterable[Device], claims: Claims) -> tuple[tuple[Device, ...], dict[str, str]]:
    """The devices with capped examples and free memory, and a text for each cap of examples, by device."""
    devices = tuple(devices)
    most = claims.examples(device.data.examples for device in devices)
    capped = tuple(_with_memory(_with_examples(device, most)) for device in devices)
    caps = {
        born.name: f"{born.data.examples} examples in its birth count as {device.data.examples}"
        for born, device in zip(devices, capped, strict=True)
        if device.data is not born.data
    }
    return capped, caps


def _with_examples(device: Device, most: float) -> Device:
    if device.data.examples <= most:
        return device
    return replace(device, data=device.data.model_copy(update={"examples": int(most)}))


def _with_memory(device: Device) -> Device:
    """Free memory is at most the memory available to the process, if that is known."""
    profile = device.profile
    if not 0 < profile.memory_bytes < (profile.memory_free_bytes or 0):
        return device
    return replace(device, profile=profile.model_copy(update={"memory_free_bytes": profile.memory_bytes}))
