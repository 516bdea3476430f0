"""The file in the run folder that names the standby, for `edge-server handover`."""

from pathlib import Path

from edge_client.storage.atomic_files import write_synced
from schemas.base import Frozen

STATUS = "standby.json"


class StandbyStatus(Frozen):
    """The standby, and whether it may take over."""

    standby: str
    origin: str
    follows: bool

    def write(self, run: Path) -> None:
        """Write the file; it is on disk when this returns."""
        write_synced(run / STATUS, self.model_dump_json().encode())


def following(run: Path) -> str:
    """Where the standby is that may take over; empty without one."""
    try:
        status = StandbyStatus.model_validate_json((run / STATUS).read_bytes())
    except (OSError, ValueError):
        return ""
    return status.origin if status.follows else ""
