"""Every retained message for Home Assistant, computed from the current state of a run."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from edge_server.config.object_store import identifier
from edge_server.config.units import clean
from edge_server.observability.integrations.home_assistant.model_versions import ModelVersions
from edge_server.observability.integrations.home_assistant.topics import INSTALL, HomeAssistantTopics
from edge_server.observability.snapshot import DeviceView, Snapshot
from schemas.base import fields_of

ONLINE, OFFLINE = b"online", b"offline"
UNKNOWN = "unknown"
MAX_REASON, MAX_SUMMARY = 200, 255
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

    def wanted_messages(self, state: CurrentState, *, gone: frozenset[str], away: Iterable[str]) -> Messages:
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
        **{name: board.get(name) for name in ("celsius", "battery", "memory_mb")},
        **fields_of(view, "tier", "ratio", "rounds"),
        "refusals": sum(view.refused.values()),
        "reason": clean(view.reason or view.ineligible_because)[:MAX_REASON],
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
        "release_summary": clean(text)[:MAX_SUMMARY],
    }


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


# The discovery message of a device: its sensors and its update entity.
#
# Device-based discovery (Home Assistant 2024.11 and later, "MQTT device discovery"), with its abbreviations.
# Templates contain keys only, never a text that a device sent.

ORIGIN = {"name": "edge-federation"}
MAX_TEXT = 100

_ALWAYS: dict[str, dict[str, Any]] = {
    "state": {"name": "State", "ic": "mdi:state-machine"},
    "round": {"name": "Round", "stat_cla": "measurement", "ic": "mdi:counter"},
    "accuracy": {
        "name": "Local accuracy",
        "unit_of_meas": "%",
        "stat_cla": "measurement",
        "sug_dsp_prc": 1,
        "ic": "mdi:bullseye-arrow",
    },
}
_WHERE_KNOWN: dict[str, dict[str, Any]] = {
    "celsius": {
        "name": "Temperature",
        "dev_cla": "temperature",
        "unit_of_meas": "°C",
        "stat_cla": "measurement",
        "ent_cat": "diagnostic",
    },
    "battery": {
        "name": "Battery",
        "dev_cla": "battery",
        "unit_of_meas": "%",
        "stat_cla": "measurement",
        "ent_cat": "diagnostic",
    },
    "memory_mb": {
        "name": "Memory",
        "dev_cla": "data_size",
        "unit_of_meas": "MB",
        "stat_cla": "measurement",
        "ent_cat": "diagnostic",
    },
}


def device_config(topics: HomeAssistantTopics, view: DeviceView) -> bytes:
    config = {
        "dev": _device(topics, view),
        "o": ORIGIN,
        "avty": [{"t": topics.status}, {"t": topics.of(view.device, "availability")}],
        "avty_mode": "all",
        "stat_t": topics.of(view.device, "state"),
        "cmps": _components(topics, view),
    }
    return _json(config)


def board_readings(view: DeviceView) -> dict[str, float]:
    """The board's known readings: degrees Celsius, battery percent, megabytes of its process."""
    found: dict[str, float] = {}
    if view.celsius is not None:
        found["celsius"] = round(view.celsius, 1)
    if view.battery is not None:
        found["battery"] = round(100 * view.battery)
    if view.board is not None and view.board.memory_bytes is not None:
        found["memory_mb"] = round(view.board.memory_bytes / 10**6)
    return found


def _device(topics: HomeAssistantTopics, view: DeviceView) -> dict[str, Any]:
    profile = view.profile
    model = "" if profile is None else clean(profile.machine or profile.processor)[:MAX_TEXT]
    software = "" if profile is None else clean(profile.software.get("edge-federation", ""))[:MAX_TEXT]
    about = {
        "ids": [f"edge-federation/{topics.federation}/{view.device}"],
        "name": view.device,
        "mf": "edge-federation",
        "mdl": model,
        "sw": software,
    }
    return {key: value for key, value in about.items() if value}


def _components(topics: HomeAssistantTopics, view: DeviceView) -> dict[str, dict[str, Any]]:
    own = f"edge-federation_{identifier(topics.federation)}_{identifier(view.device)}"
    sensors = {**_ALWAYS, **{key: _WHERE_KNOWN[key] for key in _WHERE_KNOWN if key in board_readings(view)}}
    found: dict[str, dict[str, Any]] = {
        key: {"p": "sensor", "uniq_id": f"{own}_{key}", "val_tpl": f"{{{{ value_json.{key} }}}}", **what}
        for key, what in sensors.items()
    }
    found["state"]["json_attr_t"] = topics.of(view.device, "state")
    found["model"] = {
        "p": "update",
        "name": "Model",
        "uniq_id": f"{own}_model",
        "stat_t": topics.of(view.device, "update"),
        "cmd_t": topics.of(view.device, "install"),
        "pl_inst": INSTALL.decode(),
    }
    return found
