"""The description of this machine in its birth message."""

import platform
from pathlib import Path

from edge_client.system.hardware.board import Board, look
from edge_client.system.hardware.power import hottest
from edge_client.system.hardware.speed_cache import kept_at, recall
from edge_client.system.hardware.sysfs import ROOT
from edge_client.system.libraries import releases
from schemas.values import CapabilityProfile

SOFTWARE = ("edge-federation", "torch", "onnxruntime", "numpy")


def profile(state: Path, *, tier: int | None = None, root: Path = ROOT) -> CapabilityProfile:
    """Describe this machine; unknown values are omitted. `state` is the device's folder.

    Nothing is measured: the speeds are those that `edge-client profile` has stored in the folder.
    """
    return describe_board(look(state, root), tier=tier, measured=kept_at(state))


def describe_board(board: Board, *, tier: int | None, measured: Path) -> CapabilityProfile:
    chip = board.processor
    speeds = recall(measured, chip)
    return CapabilityProfile(
        machine=chip.board or f"{platform.system()} {platform.machine()}",
        processor=chip.model,
        architecture=chip.architecture,
        cores=chip.cores,
        memory_bytes=board.memory.usable or 0,
        memory_free_bytes=board.memory.free,
        disk_bytes=board.storage.total if board.storage else None,
        disk_free_bytes=board.storage.free if board.storage else None,
        accelerator=board.accelerator,
        speed=next(iter(speeds), None),
        further_speeds=speeds[1:],
        celsius=hottest(board.zones),
        throttling=board.throttling or (),
        power=board.power.source,
        battery=board.power.battery,
        link=board.connection.kind if board.connection else None,
        tier=tier,
        software={"python": platform.python_version(), **releases(SOFTWARE)},
    )
