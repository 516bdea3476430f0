"""A case's training in files: `write` on the side with torch, `Written` in a process that trains it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_client.data.dataset import LabelledData, make_labelled_data
from edge_client.data.local import LocalData
from edge_client.training.trainer import TrainingJob
from schemas.messages import TrainTask
from schemas.messages.tasks import GRAPH, STEP
from schemas.submodel import ChannelMap

TASK, CHANNELS, ARRAYS = "task.json", "channels.json", "arrays.npz"


@dataclass(frozen=True)
class Written:
    """A folder with a task, its graphs and its arrays; imports no torch."""

    folder: Path

    @cached_property
    def task(self) -> TrainTask:
        """The task, without blobs."""
        return TrainTask.model_validate_json((self.folder / TASK).read_text())

    @cached_property
    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """The received weights."""
        return dict(np.load(self.folder / ARRAYS))

    @property
    def step(self) -> Path:
        """The step graph."""
        return self.folder / f"{STEP}.onnx"

    def job(self, examples: int) -> TrainingJob:
        """The training on that many random examples."""
        task = self.task
        data = _examples(task.model.input_shape, examples)
        return TrainingJob(
            task=task,
            plan=task.training,
            data=LocalData(data, data.subset(range(0))),
            received={"model": self.arrays},
            kept={},
            channel_map=ChannelMap.model_validate_json((self.folder / CHANNELS).read_text()),
            board=Path("/"),
            on_epoch=lambda _: None,
            should_stop=lambda: False,
            graphs={name: self.folder / f"{name}.onnx" for name in (GRAPH, STEP)},
        )


def _examples(shape: tuple[int, ...], count: int) -> LabelledData:
    random = np.random.default_rng(0)
    return make_labelled_data(random.integers(0, 255, (count, *shape), dtype=np.uint8), np.arange(count) % 10)
