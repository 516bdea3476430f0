"""Check with Home Assistant itself that it accepts the recorded messages.

    python3.13 -m venv /tmp/ha && /tmp/ha/bin/pip install homeassistant
    /tmp/ha/bin/python tests/edge_server/observability/integrations/home_assistant/against_home_assistant.py

A separate program, because Home Assistant needs a newer Python than this project and two hundred packages.
"""

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).with_name("golden")


async def main() -> None:
    """Validate each recorded message with the schemas of Home Assistant."""
    from homeassistant.core import HomeAssistant

    with tempfile.TemporaryDirectory() as folder:
        HomeAssistant(folder)  # the validation of templates needs an instance
        check()


def check() -> None:
    """Raise an error if a message is refused or a part of it would be dropped."""
    from homeassistant.components.mqtt import discovery, sensor, update
    from homeassistant.components.mqtt.schemas import DEVICE_DISCOVERY_SCHEMA
    from homeassistant.const import __version__

    platforms = {"sensor": sensor.DISCOVERY_SCHEMA, "update": update.DISCOVERY_SCHEMA}
    for path in sorted(GOLDEN.glob("config-*.json")):
        config: dict[str, Any] = discovery.MQTTDiscoveryPayload(json.loads(path.read_text()))
        discovery._replace_all_abbreviations(config)
        DEVICE_DISCOVERY_SCHEMA(config)
        for key, component in config["components"].items():
            merged = discovery.MQTTDiscoveryPayload(component)
            discovery._merge_common_device_options(merged, config)
            accepted = platforms[merged.pop("platform")](merged)
            assert not set(merged) - set(accepted), (
                f"{path.name}: {key}: dropped {set(merged) - set(accepted)}"
            )
        print(f"{path.name}: {len(config['components'])} components")
    for path in sorted(GOLDEN.glob("update-*.json")):
        update.MQTT_JSON_UPDATE_SCHEMA(json.loads(path.read_text()))
        print(path.name)
    print(f"accepted by Home Assistant {__version__}")


if __name__ == "__main__":
    asyncio.run(main())
