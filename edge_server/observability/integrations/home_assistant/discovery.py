"""The discovery message of a device: its sensors and its update entity.

Device-based discovery (Home Assistant 2024.11 and later, "MQTT device discovery"), with its abbreviations.
Templates contain keys only, never a text that a device sent.
"""

import json
from typing import Any

from edge_server.config.integrations import identifier
from edge_server.config.units import clean
from edge_server.observability.integrations.home_assistant.topics import INSTALL, HomeAssistantTopics
from edge_server.observability.snapshot import DeviceView

ORIGIN = {"name": "edge-federation"}
MOST_TEXT = 100

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
    """The discovery message of a device, as JSON."""
    config = {
        "dev": _device(topics, view),
        "o": ORIGIN,
        "avty": [{"t": topics.status}, {"t": topics.of(view.device, "availability")}],
        "avty_mode": "all",
        "stat_t": topics.of(view.device, "state"),
        "cmps": _components(topics, view),
    }
    return json.dumps(config, separators=(",", ":")).encode()


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
    model = "" if profile is None else clean(profile.machine or profile.processor)[:MOST_TEXT]
    software = "" if profile is None else clean(profile.software.get("edge-federation", ""))[:MOST_TEXT]
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
