"""What a virtual device says of its board, and the memory that its training finds there."""

from pathlib import Path

from edge_client.storage.atomic_files import write_synced
from edge_client.training.choice import PROCESS_BYTES
from edge_server.config.board_profiles import BoardProfile
from edge_server.simulation.clock import FLOPS_PER_MAC
from schemas.values import CapabilityProfile, MeasuredSpeed, TrainerName

UNBOUNDED_MACS_PER_S, UNBOUNDED_BYTES_PER_S = 1e18, 1e15
"""The largest speeds that a device may report: the virtual clock does not count what memory moves."""


def undecided_profile(board: BoardProfile, trainer: TrainerName) -> CapabilityProfile:
    """The profile of a device that states no tier, as the board would have measured it with that trainer."""
    return CapabilityProfile(
        machine=board.name,
        memory_bytes=board.memory_bytes,
        memory_free_bytes=board.available_bytes,
        speed=MeasuredSpeed(
            trainer=trainer,
            training_macs_per_s=min(board.training_flops / FLOPS_PER_MAC, UNBOUNDED_MACS_PER_S),
            memory_bytes_per_s=UNBOUNDED_BYTES_PER_S,
            resident_bytes=PROCESS_BYTES[trainer],
        ),
        trainers=(trainer,),
    )


def free_for_training(profile: CapabilityProfile) -> int | None:
    """Bytes that are free besides the trainer's process; None if the board's memory does not count."""
    if profile.memory_free_bytes is None or profile.speed is None:
        return None
    return max(0, profile.memory_free_bytes - (profile.speed.resident_bytes or 0))


def board_files(folder: Path, free: int) -> Path:
    """A directory in `folder` that stands for the `/` of a board with `free` bytes of memory."""
    root = folder / f"{free}"
    meminfo = root / "proc" / "meminfo"
    if not meminfo.exists():
        meminfo.parent.mkdir(parents=True, exist_ok=True)
        lines = (f"{name}: {free // 1024} kB\n" for name in ("MemTotal", "MemAvailable"))
        write_synced(meminfo, "".join(lines).encode(), durable=False)
    return root
