"""What Home Assistant is told of a device once: its sensors and its update entity, in one message.

Device-based discovery (Home Assistant 2024.11 and later, "MQTT device discovery"), with its abbreviations.
Templates name keys and nothing else: what a device calls itself, or a reason, is never part of one.
"""

from __future__ import annotations

import json
from typing import Any

from edge_server.config.home_assistant import identifier
from edge_server.config.units import clean
from edge_server.integrations.home_assistant.topics import INSTALL, HomeAssistantTopics
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


def device_config(places: HomeAssistantTopics, view: DeviceView) -> bytes:
    """The discovery message of a device, as JSON."""
    config = {
        "dev": _device(places, view),
        "o": ORIGIN,
        "avty": [{"t": places.status}, {"t": places.of(view.device, "availability")}],
        "avty_mode": "all",
        "stat_t": places.of(view.device, "state"),
        "cmps": _components(places, view),
    }
    return json.dumps(config, separators=(",", ":")).encode()


def known(view: DeviceView) -> dict[str, float]:
    """What is known of how the board is: degrees Celsius, percent, megabytes that its process holds."""
    found: dict[str, float] = {}
    if view.celsius is not None:
        found["celsius"] = round(view.celsius, 1)
    if view.battery is not None:
        found["battery"] = round(100 * view.battery)
    if view.board is not None and view.board.memory_bytes is not None:
        found["memory_mb"] = round(view.board.memory_bytes / 10**6)
    return found


def _device(places: HomeAssistantTopics, view: DeviceView) -> dict[str, Any]:
    profile = view.profile
    model = "" if profile is None else clean(profile.machine or profile.processor)[:MOST_TEXT]
    software = "" if profile is None else clean(profile.software.get("edge-federation", ""))[:MOST_TEXT]
    said = {
        "ids": [f"edge-federation/{places.federation}/{view.device}"],
        "name": view.device,
        "mf": "edge-federation",
        "mdl": model,
        "sw": software,
    }
    return {key: value for key, value in said.items() if value}


def _components(places: HomeAssistantTopics, view: DeviceView) -> dict[str, dict[str, Any]]:
    own = f"edge-federation_{identifier(places.federation)}_{identifier(view.device)}"
    sensors = {**_ALWAYS, **{key: _WHERE_KNOWN[key] for key in _WHERE_KNOWN if key in known(view)}}
    found: dict[str, dict[str, Any]] = {
        key: {"p": "sensor", "uniq_id": f"{own}_{key}", "val_tpl": f"{{{{ value_json.{key} }}}}", **what}
        for key, what in sensors.items()
    }
    found["state"]["json_attr_t"] = places.of(view.device, "state")
    found["model"] = {
        "p": "update",
        "name": "Model",
        "uniq_id": f"{own}_model",
        "stat_t": places.of(view.device, "update"),
        "cmd_t": places.of(view.device, "install"),
        "pl_inst": INSTALL.decode(),
    }
    return found
