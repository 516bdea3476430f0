"""Example states of a run with two devices, one of which reports its board state."""

from dataclasses import replace
from typing import Any

from edge_server.observability.integrations.home_assistant.model_versions import ModelVersions
from edge_server.observability.integrations.home_assistant.states import CurrentState
from edge_server.observability.integrations.home_assistant.topics import HomeAssistantTopics
from edge_server.observability.snapshot import DeviceView, Snapshot
from schemas.values import BoardState, CapabilityProfile

PLACES = HomeAssistantTopics("home")
PROFILE = CapabilityProfile(machine="Raspberry Pi 4 Model B Rev 1.4", celsius=41.5)
BOARD = BoardState(celsius=52.34, battery=0.875, memory_bytes=312_400_000, load=0.5)
KITCHEN = DeviceView(
    "pi-4.kitchen", 3, 0.3, "training", accuracy=0.9125, rounds=4, refused={"not-finite": 2}, board=BOARD
)
GARAGE = DeviceView("pi_garage", 1, 0.7, "offline", profile=PROFILE)


def snapshot(*devices: DeviceView, round_number: int = 5) -> Snapshot:
    """A snapshot of the run in a round, with these devices."""
    return Snapshot("home", "home-1", "training", round_number, 10, 60.0, devices=devices)


def moment(*devices: DeviceView, **more: Any) -> CurrentState:
    """The state with a registry in which v2 is approved and the kitchen device has v1."""
    reported = {"versions": ModelVersions("v2", {"pi-4.kitchen": "v1"}), **more}
    return CurrentState(snapshot(*devices), **reported)


def named(device: str, **more: Any) -> DeviceView:
    """The kitchen device under another name."""
    return replace(KITCHEN, device=device, **more)
