"""The virtual clock: seconds that a device's transfers and tasks take on its board.

A multiply-accumulate is 2 FLOP. An example in training costs three forward passes: one forward and two
backward, for the gradients by inputs and by weights (Kaplan et al. 2020, section 2.1: 2 FLOP forward and 4
backward per weight). Element-wise layers and the optimizer's step are not counted.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from edge_client.storage.atomic_files import write_synced
from edge_client.training.choice import PROCESS_BYTES
from edge_client.transport.chunk_transfer import WINDOW
from edge_server.config.board_profiles import BoardProfile
from schemas.messages import BlobRequest, DeliverTask, Task, encode_message
from schemas.tensors.chunks import CHUNK_HEADER_BYTES, BlobRef
from schemas.values import TRAINING_PASSES, CapabilityProfile, MeasuredSpeed, TrainerName

FLOPS_PER_MAC = 2
DELIVERY_PASSES = 16
"""`edge_client.inference.export.onnx` compares an export on 8 inputs, each through torch and through ONNX.

The conversion itself and the accuracy on held-out data are not counted.
"""


@dataclass(frozen=True)
class Work:
    """Multiply-accumulates of a task for one example and forward pass.

    `each` are those of the layers that run in every step, `before` those of what a device scores or computes
    before its first step, and `once` those of layers that stay the same, whose features it keeps.
    """

    each: int
    before: int = 0
    once: int = 0


@dataclass(frozen=True)
class Pace:
    """The pace of a device with that board and number of training examples; all times in seconds."""

    board: BoardProfile
    examples: int

    def download_s(self, size: int) -> float:
        """Time to receive `size` bytes, without latency."""
        return 8 * size / self.board.downlink_bps

    def upload_s(self, size: int) -> float:
        """Time to send `size` bytes, without latency."""
        return 8 * size / self.board.uplink_bps

    def work_s(self, task: Task, work: Work, *, has_features: bool = False) -> float:
        """Time of the task's work. Without epochs, one scoring pass.

        A device that `has_features` of the frozen layers does not run them.
        """
        each = work.each
        if isinstance(task, DeliverTask):
            plan = task.personalise
            passes = TRAINING_PASSES * plan.local_epochs * plan.copies if plan else 0
            total = each * (DELIVERY_PASSES + self.examples * passes)
        else:
            models = 1 if task.own_model is None else 2
            passes = models * each * (TRAINING_PASSES * task.training.local_epochs or 1)
            before = work.before + (0 if has_features else work.once)
            total = self.examples * task.training.copies * (passes + before)
        return FLOPS_PER_MAC * total / self.board.training_flops


# Transfers of blobs to or from one device as arithmetic: their end in seconds, their bytes on the wire.
#
# A simulation cuts no blob into chunks, but counts the bytes that a broker would have carried.


@dataclass(frozen=True)
class Transit:
    """A transfer until `ends_at` (seconds); without a link None, with `left_s` seconds left."""

    ref: BlobRef
    number: int
    left_s: float
    ends_at: float | None


class Transits:
    """The transfers in one direction, one after the other; a cut link loses no progress."""

    def __init__(self) -> None:
        self._moving: dict[str, Transit] = {}
        self._count = 0
        self._free_at = 0.0

    def begin(self, ref: BlobRef, duration_s: float, now: float) -> Transit | None:
        """Begin or continue a transfer; None if it is running already."""
        previous = self._moving.get(ref.digest)
        if previous is not None and previous.ends_at is not None:
            return None
        left = duration_s if previous is None else previous.left_s
        self._count += 1
        self._free_at = max(now, self._free_at) + left
        self._moving[ref.digest] = transit = Transit(ref, self._count, left, self._free_at)
        return transit

    def finish(self, digest: str, number: int) -> BlobRef | None:
        """Complete the transfer of that number; None if it was cut or forgotten."""
        transit = self._moving.get(digest)
        if transit is None or transit.number != number or transit.ends_at is None:
            return None
        return self._moving.pop(digest).ref

    def cut(self, now: float) -> None:
        for digest, transit in self._moving.items():
            if transit.ends_at is not None:
                left = min(transit.left_s, transit.ends_at - now)
                self._moving[digest] = replace(transit, left_s=left, ends_at=None)
        self._free_at = now

    def forget(self, digests: Iterable[str]) -> None:
        for digest in digests:
            self._moving.pop(digest, None)

    def __contains__(self, digest: str) -> bool:
        return digest in self._moving


def transfer_bytes(ref: BlobRef) -> int:
    return ref.size + ref.chunks * CHUNK_HEADER_BYTES


def later_request_bytes(federation: str, device: str, ref: BlobRef) -> int:
    """Bytes of all requests but the first, as `edge_client.transport.chunk_transfer` makes them."""
    requests = (
        BlobRequest(federation=federation, device=device, digest=ref.digest, first=first, count=count)
        for first, count in later_windows(ref.chunks)
    )
    return sum(len(encode_message(request)) for request in requests)


def later_windows(chunks: int) -> Iterator[tuple[int, int]]:
    """First chunk and number of chunks of each later request: half a window after each half received."""
    half = WINDOW // 2
    for first in range(WINDOW, chunks, half):
        yield first, min(half, chunks - first)


# What a virtual device says of its board, and the memory that its training finds there.
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
