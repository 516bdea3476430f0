"""Every retained message for Home Assistant, computed from the current state of a run."""

import json
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edge_server.config.object_store import identifier
from edge_server.config.units import clean
from edge_server.observability.integrations.home_assistant.topics import INSTALL, HomeAssistantTopics
from edge_server.observability.snapshot import DeviceView, Snapshot
from edge_server.releases.registry.registry import FILE
from edge_server.releases.rollout.target import TargetStatus

# Model versions in the registry: the approved one, and the one that the last rollout left on each device.

REREAD_S = 5.0  # Seconds between two reads of the registry


@dataclass(frozen=True)
class ModelVersions:
    """The federation's active version, if any, and the version that each device has kept."""

    approved: str | None = None
    kept: Mapping[str, str] = field(default_factory=dict)


def read_model_versions(registry: Path, federation: str) -> ModelVersions:
    """Read the registry; empty where there is none yet or it cannot be read."""
    file = registry / FILE
    if not file.is_file():
        return ModelVersions()
    try:
        with closing(sqlite3.connect(file, timeout=5)) as database:
            active = database.execute(
                "SELECT version FROM active WHERE federation = ?", (federation,)
            ).fetchone()
            kept = database.execute(
                "SELECT targets.device, rollouts.version FROM targets JOIN rollouts USING (rollout)"
                " WHERE rollouts.federation = ? AND targets.status = ? ORDER BY targets.at",
                (federation, TargetStatus.KEPT),
            ).fetchall()
    except sqlite3.Error:
        return ModelVersions()
    return ModelVersions(None if active is None else active[0], dict(kept))


class ModelVersionReader:
    """A federation's model versions, read again every `REREAD_S` seconds."""

    def __init__(self, registry: Path, federation: str) -> None:
        self._registry, self._federation = registry, federation
        self._versions, self._next_read = ModelVersions(), 0.0

    def current(self, now: float) -> ModelVersions:
        """The versions at `now` (monotonic seconds)."""
        if now >= self._next_read:
            self._next_read = now + REREAD_S
            self._versions = read_model_versions(self._registry, self._federation)
        return self._versions

    def expire(self) -> None:
        """Read the registry again at the next call of `current`."""
        self._next_read = 0.0


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
        "celsius": board.get("celsius"),
        "battery": board.get("battery"),
        "memory_mb": board.get("memory_mb"),
        "tier": view.tier,
        "ratio": view.ratio,
        "rounds": view.rounds,
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
