"""The virtual clock: how long a task takes on a board, in seconds.

A multiply-accumulate is 2 FLOP. An example in training costs three forward passes: one forward and, for the
gradients by inputs and by weights, two backward (Kaplan et al. 2020, section 2.1: 2 FLOP forward and 4
backward per weight). Element-wise layers and the optimizer's step are not counted.
"""

from __future__ import annotations

from dataclasses import dataclass

from edge_server.config.board_profiles import BoardProfile
from schemas.values import TRAINING_PASSES

FLOPS_PER_MAC = 2
DELIVERY_PASSES = 16
"""`edge_client.inference.export.onnx` compares an export on 8 inputs, each through torch and through ONNX.

The conversion itself and the accuracy on held-out data are left out.
"""


@dataclass(frozen=True)
class TaskTimes:
    """Seconds from the first byte of a task's blobs to the last byte of its answer's."""

    download_s: float
    work_s: float
    upload_s: float

    @property
    def total_s(self) -> float:
        """All three, one after the other."""
        return self.download_s + self.work_s + self.upload_s


def task_times(
    board: BoardProfile, *, downlink_bytes: int, macs: int, examples: int, epochs: int, uplink_bytes: int
) -> TaskTimes:
    """A training task: `macs` per example and forward pass, `examples` on the device.

    No `epochs` is a scoring pass: one forward pass over the examples. The board's `latency_s` is not in it:
    that is per message, whatever its size.
    """
    passes = TRAINING_PASSES * epochs if epochs else 1
    return _times(board, downlink_bytes, macs * examples * passes, uplink_bytes)


def delivery_times(
    board: BoardProfile, *, downlink_bytes: int, macs: int, uplink_bytes: int = 0
) -> TaskTimes:
    """An export task: the sub-model comes, and its export is checked on `DELIVERY_PASSES` forward passes."""
    return _times(board, downlink_bytes, macs * DELIVERY_PASSES, uplink_bytes)


def _times(board: BoardProfile, downlink_bytes: int, macs: int, uplink_bytes: int) -> TaskTimes:
    return TaskTimes(
        download_s=8 * downlink_bytes / board.downlink_bps,
        work_s=FLOPS_PER_MAC * macs / board.training_flops,
        upload_s=8 * uplink_bytes / board.uplink_bps,
    )
