"""`made.json`: the command, the machine and the package versions that a run was started with."""

import shlex
import sys
from functools import lru_cache
from pathlib import Path

from pydantic import ValidationError

from edge_client.storage.atomic_files import write_synced
from edge_server.storage.provenance import Provenance, provenance

NAME = "made.json"


def write_provenance(directory: Path) -> None:
    """Record the provenance of the run in this folder; a resumed run keeps its first record."""
    path = directory / NAME
    if not path.exists():
        write_synced(path, (_here().model_dump_json(indent=2) + "\n").encode())


def read_provenance(directory: Path) -> Provenance | None:
    """The recorded provenance; None where the file is missing or unreadable."""
    try:
        return Provenance.model_validate_json((directory / NAME).read_bytes())
    except (OSError, ValidationError):
        return None


@lru_cache(maxsize=1)
def _here() -> Provenance:
    """The provenance of this process, computed once: a comparison starts hundreds of runs."""
    return provenance(shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]))
