"""The virtual clock: seconds that a device's transfers and tasks take on its board.

A multiply-accumulate is 2 FLOP. An example in training costs three forward passes: one forward and two
backward, for the gradients by inputs and by weights (Kaplan et al. 2020, section 2.1: 2 FLOP forward and 4
backward per weight). Element-wise layers and the optimizer's step are not counted.
"""

from dataclasses import dataclass

from edge_server.config.board_profiles import BoardProfile
from schemas.messages import DeliverTask, Task
from schemas.values import TRAINING_PASSES

FLOPS_PER_MAC = 2
DELIVERY_PASSES = 16
"""`edge_client.inference.export.onnx` compares an export on 8 inputs, each through torch and through ONNX.

The conversion itself and the accuracy on held-out data are not counted.
"""


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

    def work_s(self, task: Task, macs: int, *, scored_macs: int = 0) -> float:
        """Time of the task's work; `macs` per example and forward pass. Without epochs, one scoring pass.

        `scored_macs` are those of a network that the device scores before it trains a part of it.
        """
        if isinstance(task, DeliverTask):
            epochs = task.personalise.local_epochs if task.personalise else 0
            total = macs * (DELIVERY_PASSES + self.examples * TRAINING_PASSES * epochs)
        else:
            models = 1 if task.own_model is None else 2
            passes = models * macs * (TRAINING_PASSES * task.training.local_epochs or 1)
            total = self.examples * (passes + scored_macs)
        return FLOPS_PER_MAC * total / self.board.training_flops
