"""`made.json`: the command, the machine and the versions that a run was begun with."""

from __future__ import annotations

import shlex
import sys
from functools import lru_cache
from pathlib import Path

from pydantic import ValidationError

from edge_client.storage.atomic_files import write_synced
from edge_server.storage.provenance import Provenance, provenance

NAME = "made.json"


def write_provenance(directory: Path) -> None:
    """Note what the run in this folder is begun with; a run that goes on keeps its first note."""
    path = directory / NAME
    if not path.exists():
        write_synced(path, (_here().model_dump_json(indent=2) + "\n").encode())


def read_provenance(directory: Path) -> Provenance | None:
    """The note; None where there is none that can be read."""
    try:
        return Provenance.model_validate_json((directory / NAME).read_bytes())
    except (OSError, ValidationError):
        return None


@lru_cache(maxsize=1)
def _here() -> Provenance:
    """Looked at once: a comparison begins hundreds of runs."""
    return provenance(shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]))
