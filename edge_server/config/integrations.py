"""The sections `[home-assistant]` and `[sparkplug]` of a federation file."""

import re
from pathlib import Path
from typing import Annotated

from pydantic import StringConstraints

from schemas.base import Settings
from schemas.names import Name
from schemas.values import Seconds

_ESCAPED = re.compile("__|_d")
PREFIX_PATTERN = r"^[A-Za-z0-9_-]{1,64}(/[A-Za-z0-9_-]{1,64}){0,7}$"


class HomeAssistantSettings(Settings):
    """The connection to Home Assistant; off unless `discovery` is set.

    Home Assistant searches for devices below `prefix`. A model that its Install button has brought to a
    device is watched for `watch-s` before it is kept. On a broker with certificates `authority` is the folder
    of `edge-server enroll` (by default that of the server's own certificate): its `home/` and `rollout/` are
    used.
    """

    discovery: bool = False
    """Announce every device to Home Assistant."""
    prefix: Annotated[str, StringConstraints(pattern=PREFIX_PATTERN)] = "homeassistant"
    """Home Assistant's discovery prefix."""
    watch_s: Seconds = 300.0
    """Seconds for which a model installed by the button is watched."""
    authority: Path | None = None
    """The authority's folder, if the broker asks for certificates."""


def identifier(name: str) -> str:
    """A name for Home Assistant's topics, without dots; different names stay different."""
    return name.replace("_", "__").replace(".", "_d")


def name_of(identifier: str) -> str:
    return _ESCAPED.sub(lambda found: "_" if found.group() == "__" else ".", identifier)


class SparkplugSettings(Settings):
    """The federation as an edge node in the Sparkplug group `group`; off unless it is set.

    The node has the federation's name and its devices theirs. On a broker with certificates `authority` is
    the folder of `edge-server enroll` (by default that of the server's own certificate): its `sparkplug/` is
    used.
    """

    group: Name | None = None
    """Sparkplug group; unset turns Sparkplug off."""
    datatypes: bool = True
    """Whether data messages repeat the types that births state. The specification recommends to leave them
    out, but npm's sparkplug-payload 1.0.3 then reads each value as null."""
    authority: Path | None = None
    """The authority's folder, if the broker asks for certificates."""
