"""Every retained message for Home Assistant, computed from the current state of a run."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from edge_server.config.units import clean
from edge_server.observability.integrations.home_assistant.discovery import board_readings, device_config
from edge_server.observability.integrations.home_assistant.model_versions import ModelVersions
from edge_server.observability.integrations.home_assistant.topics import HomeAssistantTopics
from edge_server.observability.snapshot import DeviceView, Snapshot

ONLINE, OFFLINE = b"online", b"offline"
UNKNOWN = "unknown"
MOST_REASON, MOST_SUMMARY = 200, 255
"""Maximum characters of a reason and of a release summary; Home Assistant truncates longer summaries."""
Messages = dict[str, bytes]


@dataclass(frozen=True)
class Installation:
    """A pressed Install button: `percent` while the installation is under way, `text` as release summary."""

    device: str
    percent: int | None = None
    text: str = ""


@dataclass(frozen=True)
class CurrentState:
    """Everything that messages are made from: the run, the model versions, pressed Install buttons."""

    snapshot: Snapshot
    versions: ModelVersions = field(default_factory=ModelVersions)
    installations: Mapping[str, Installation] = field(default_factory=dict)


class DeviceMessages:
    """The messages of each device, cached until something that they are made from changes."""

    def __init__(self, topics: HomeAssistantTopics) -> None:
        self._topics = topics
        self._cache: dict[str, tuple[tuple[object, ...], Messages]] = {}

    def wanted(self, state: CurrentState, *, gone: frozenset[str], away: Iterable[str]) -> Messages:
        """The wanted payload of each topic: none for devices that are `gone`, offline for those `away`."""
        found: Messages = {self._topics.of(device, "availability"): OFFLINE for device in away}
        for view in state.snapshot.devices:
            if view.device not in gone:
                found |= self._of(state, view)
        return found

    def _of(self, state: CurrentState, view: DeviceView) -> Messages:
        asked, kept = state.installations.get(view.device), state.versions.kept.get(view.device)
        key = (view, state.snapshot.round, state.versions.approved, kept, asked)
        cached = self._cache.get(view.device)
        if cached is None or cached[0] != key:
            cached = self._cache[view.device] = (key, _of_device(self._topics, state, view))
        return cached[1]


def clear_devices(topics: HomeAssistantTopics, devices: Iterable[str]) -> Messages:
    """Empty payloads that make Home Assistant forget devices."""
    return {topic: b"" for device in devices for topic in topics.all_of(device)}


def _of_device(topics: HomeAssistantTopics, state: CurrentState, view: DeviceView) -> Messages:
    return {
        topics.config(view.device): device_config(topics, view),
        topics.of(view.device, "availability"): OFFLINE if view.state == "offline" else ONLINE,
        topics.of(view.device, "state"): _json(state_of(view, state.snapshot.round)),
        topics.of(view.device, "update"): _json(update_of(view.device, state)),
    }


def state_of(view: DeviceView, round_number: int) -> dict[str, Any]:
    """One key per sensor, null where the value is not known; shares in percent."""
    board = board_readings(view)
    return {
        "state": view.state,
        "round": round_number,
        "accuracy": None if view.accuracy is None else round(100 * view.accuracy, 2),
        "celsius": board.get("celsius"),
        "battery": board.get("battery"),
        "memory_mb": board.get("memory_mb"),
        "tier": view.tier,
        "ratio": view.ratio,
        "rounds": view.rounds,
        "refusals": sum(view.refused.values()),
        "reason": clean(view.reason or view.ineligible_because)[:MOST_REASON],
    }


def update_of(device: str, state: CurrentState) -> dict[str, Any]:
    """The installed and the approved model version, in the form of Home Assistant's update entity.

    Without an approved version both are the installed one, so that there is nothing to install.
    """
    installed = state.versions.kept.get(device, UNKNOWN)
    asked = state.installations.get(device)
    text = asked.text if asked is not None else ""
    if not text and state.versions.approved is None:
        text = "No version is approved: edge-server models set-active names one."
    return {
        "installed_version": installed,
        "latest_version": state.versions.approved or installed,
        "title": "Model",
        "in_progress": asked is not None and asked.percent is not None,
        "update_percentage": None if asked is None else asked.percent,
        "release_summary": clean(text)[:MOST_SUMMARY],
    }


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
