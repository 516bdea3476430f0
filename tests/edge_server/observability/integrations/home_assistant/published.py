"""The messages that Home Assistant 2026.2.3 accepts, read from its source (Apache-2.0), but stricter.

From `homeassistant/components/mqtt/`: `abbreviations.py` (short names), `discovery.py` (`TOPIC_MATCHER`),
`schemas.py` (`DEVICE_DISCOVERY_SCHEMA`, `MQTT_ENTITY_COMMON_SCHEMA`, `MQTT_ORIGIN_INFO_SCHEMA`), `sensor.py`
and `update.py` (`PLATFORM_SCHEMA_MODERN`, `MQTT_JSON_UPDATE_SCHEMA`), and `components/sensor/const.py` (units
of a device class). Home Assistant silently drops unknown keys; here they are errors.
`against_home_assistant.py` in this folder checks with Home Assistant itself.
"""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

TOPIC = re.compile(r"device/(?:(?P<node>[a-zA-Z0-9_-]+)/)?(?P<object>[a-zA-Z0-9_-]+)/config")
SHORT = {
    "avty": "availability",
    "avty_mode": "availability_mode",
    "cmd_t": "command_topic",
    "cmps": "components",
    "dev": "device",
    "dev_cla": "device_class",
    "ent_cat": "entity_category",
    "ic": "icon",
    "json_attr_t": "json_attributes_topic",
    "o": "origin",
    "p": "platform",
    "pl_inst": "payload_install",
    "stat_cla": "state_class",
    "stat_t": "state_topic",
    "sug_dsp_prc": "suggested_display_precision",
    "t": "topic",
    "uniq_id": "unique_id",
    "unit_of_meas": "unit_of_measurement",
    "val_tpl": "value_template",
}
SHORT_OF_A_DEVICE = {"ids": "identifiers", "mdl": "model", "mf": "manufacturer", "sw": "sw_version"}
UNITS = {
    "temperature": {"°C", "°F", "K"},
    "battery": {"%"},
    "data_size": {"B", "kB", "MB", "GB", "KiB", "MiB"},
}

PlainTopic = Annotated[str, StringConstraints(pattern=r"^[^+#\x00-\x1f]+$", min_length=1)]
KeyTemplate = Annotated[str, StringConstraints(pattern=r"^\{\{ value_json\.[a-z_]+ \}\}$")]
"""A rule of this project: a template names one key."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Availability(_Strict):
    topic: PlainTopic
    payload_available: str = "online"
    payload_not_available: str = "offline"


class Origin(_Strict):
    name: str
    sw_version: str = ""
    support_url: str = ""


class DeviceInfo(_Strict):
    identifiers: list[str] = Field(min_length=1)
    name: str = ""
    manufacturer: str = ""
    model: str = ""
    sw_version: str = ""


class _Entity(_Strict):
    unique_id: str
    name: str
    icon: Annotated[str, StringConstraints(pattern=r"^[a-z]+:[a-z-]+$")] = "mdi:eye"
    entity_category: Literal["config", "diagnostic"] = "diagnostic"
    json_attributes_topic: PlainTopic = "-"


class SensorEntity(_Entity):
    platform: Literal["sensor"]
    state_topic: PlainTopic
    value_template: KeyTemplate
    device_class: Literal["temperature", "battery", "data_size"] | None = None
    state_class: Literal["measurement", "total", "total_increasing"] | None = None
    unit_of_measurement: str | None = None
    suggested_display_precision: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _unit_fits(self) -> SensorEntity:
        if self.device_class is not None and self.unit_of_measurement not in UNITS[self.device_class]:
            raise ValueError(f"{self.unit_of_measurement} is not a unit of {self.device_class}")
        return self


class UpdateEntity(_Entity):
    platform: Literal["update"]
    state_topic: PlainTopic
    command_topic: PlainTopic
    payload_install: str


class Discovery(_Strict):
    device: DeviceInfo
    origin: Origin
    availability: list[Availability]
    availability_mode: Literal["all", "any", "latest"] = "latest"
    state_topic: PlainTopic
    components: dict[str, Annotated[SensorEntity | UpdateEntity, Field(discriminator="platform")]]


class UpdateState(_Strict):
    """`MQTT_JSON_UPDATE_SCHEMA`."""

    installed_version: str
    latest_version: str
    title: str
    release_summary: Annotated[str, StringConstraints(max_length=255)]
    in_progress: bool
    update_percentage: Annotated[int, Field(ge=0, le=100)] | None


def discovery(topic: str, payload: bytes, *, prefix: str = "homeassistant") -> Discovery:
    """A discovery message as Home Assistant reads it; the state topic is shared by all components."""
    assert TOPIC.fullmatch(topic.removeprefix(f"{prefix}/")), topic
    config = _long(json.loads(payload), SHORT)
    config["device"] = _long(config["device"], SHORT_OF_A_DEVICE)
    config["availability"] = [_long(entry, SHORT) for entry in config["availability"]]
    config["components"] = {
        key: {"state_topic": config["state_topic"], **_long(component, SHORT)}
        for key, component in config["components"].items()
    }
    return Discovery.model_validate(config)


def update_state(payload: bytes) -> UpdateState:
    """The state message of an update entity."""
    return UpdateState.model_validate_json(payload)


def _long(value: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    assert not set(value) & set(names.values()), "every key must be a short name"
    return {names.get(key, key): item for key, item in value.items()}
