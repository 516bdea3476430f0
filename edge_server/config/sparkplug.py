"""The section `[sparkplug]` of a federation file."""

from __future__ import annotations

from pathlib import Path

from schemas.base import Settings
from schemas.names import Name


class SparkplugSettings(Settings):
    """In which `group` of a Sparkplug name space the federation is an edge node; unless stated, in none.

    The node has the federation's name and its devices theirs. On a broker with certificates `authority` is
    the folder of `edge-server enroll` (unless stated, that of the server's own certificate): its
    `sparkplug/` is used.
    """

    group: Name | None = None
    """Sparkplug group; unset turns Sparkplug off."""
    authority: Path | None = None
    """The authority's folder, if the broker asks for certificates."""
