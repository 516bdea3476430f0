"""The section `[sparkplug]` of a federation file."""

from pathlib import Path

from schemas.base import Settings
from schemas.names import Name


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
