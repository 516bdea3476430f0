"""The current state of the board."""

from pathlib import Path

from pydantic import ValidationError

from edge_client.system.hardware.memory import memory, resident, storage
from edge_client.system.hardware.power import hottest, power, zones
from edge_client.system.hardware.processor import read_load
from edge_client.system.hardware.sysfs import ROOT
from schemas.values import BoardState


def board_state(*, cores: int, root: Path = ROOT, folder: Path | None = None) -> BoardState:
    """The current state, with the free space of `folder`; unreadable and impossible values are omitted."""
    busy, disk = read_load(root), None if folder is None else storage(folder)
    read = {
        "celsius": hottest(zones(root)),
        "battery": power(root).battery,
        "memory_bytes": resident(root),
        "memory_free_bytes": memory(root).free,
        "load": None if busy is None else busy / max(1, cores),
        "disk_free_bytes": None if disk is None else disk.free,
    }
    try:
        return BoardState.model_validate(read)
    except ValidationError as error:
        wrong = {problem["loc"][0] for problem in error.errors()}
        return BoardState.model_validate({key: value for key, value in read.items() if key not in wrong})
