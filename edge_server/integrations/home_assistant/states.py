"""From a moment of the run to every retained message that Home Assistant is to find then: a pure mapping."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from edge_server.config.units import clean
from edge_server.integrations.home_assistant.discovery import device_config, known
from edge_server.integrations.home_assistant.model_versions import ModelVersions
from edge_server.integrations.home_assistant.topics import HomeAssistantTopics
from edge_server.observability.snapshot import DeviceView, Snapshot

ONLINE, OFFLINE = b"online", b"offline"
UNKNOWN = "unknown"
MOST_REASON, MOST_SUMMARY = 200, 255
"""Home Assistant cuts a release summary after so many characters."""
Messages = dict[str, bytes]


@dataclass(frozen=True)
class Installation:
    """What became of a press of the button: `percent` while it is under way, and what is said of it."""

    device: str
    percent: int | None = None
    said: str = ""


@dataclass(frozen=True)
class CurrentState:
    """All that is told of: the run, the registry, what was asked for by button."""

    snapshot: Snapshot
    shelf: ModelVersions = field(default_factory=ModelVersions)
    installations: Mapping[str, Installation] = field(default_factory=dict)


class DeviceMessages:
    """The messages of each device as they were found last: a thousand that stay as they are cost little."""

    def __init__(self, places: HomeAssistantTopics) -> None:
        self._places = places
        self._found: dict[str, tuple[tuple[object, ...], Messages]] = {}

    def wanted(self, moment: CurrentState, *, gone: frozenset[str], away: Iterable[str]) -> Messages:
        """What is to lie on each topic; devices that are `gone` for good have none.

        Who was told of before and is not in the run is `away`: no more is known than that.
        """
        found: Messages = {self._places.of(device, "availability"): OFFLINE for device in away}
        for view in moment.snapshot.devices:
            if view.device not in gone:
                found |= self._of(moment, view)
        return found

    def _of(self, moment: CurrentState, view: DeviceView) -> Messages:
        asked, kept = moment.installations.get(view.device), moment.shelf.kept.get(view.device)
        about = (view, moment.snapshot.round, moment.shelf.approved, kept, asked)
        known = self._found.get(view.device)
        if known is None or known[0] != about:
            known = self._found[view.device] = (about, _of_device(self._places, moment, view))
        return known[1]


def cleared(places: HomeAssistantTopics, devices: Iterable[str]) -> Messages:
    """What makes Home Assistant forget devices."""
    return {topic: b"" for device in devices for topic in places.all_of(device)}


def _of_device(places: HomeAssistantTopics, moment: CurrentState, view: DeviceView) -> Messages:
    return {
        places.config(view.device): device_config(places, view),
        places.of(view.device, "availability"): OFFLINE if view.state == "offline" else ONLINE,
        places.of(view.device, "state"): _json(state_of(view, moment.snapshot.round)),
        places.of(view.device, "update"): _json(update_of(view.device, moment)),
    }


def state_of(view: DeviceView, round_number: int) -> dict[str, Any]:
    """One key per sensor, null where nothing is known; shares in percent."""
    board = known(view)
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


def update_of(device: str, moment: CurrentState) -> dict[str, Any]:
    """The model that the device has and the one that it could have, as Home Assistant's update entity asks.

    Without an approved version there is nothing to install, so the two are the same.
    """
    installed = moment.shelf.kept.get(device, UNKNOWN)
    asked = moment.installations.get(device)
    said = asked.said if asked is not None else ""
    if not said and moment.shelf.approved is None:
        said = "No version is approved: edge-server models set-active names one."
    return {
        "installed_version": installed,
        "latest_version": moment.shelf.approved or installed,
        "title": "Model",
        "in_progress": asked is not None and asked.percent is not None,
        "update_percentage": None if asked is None else asked.percent,
        "release_summary": clean(said)[:MOST_SUMMARY],
    }


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
