"""Where a device works: its data, its blobs, its models; all that a task needs beside the task."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from edge_client.blobstore import BlobStore
from edge_client.data.labelled import LabelledData
from schemas.blobs import CHUNK_BYTES
from schemas.errors import PeerError
from schemas.messages import Reason, Task


@dataclass(frozen=True)
class LocalData:
    """A device's own examples: what it trains on, and what it never trains on."""

    train: LabelledData
    held_out: LabelledData

    def as_the_server_says(self, task: Task) -> LocalData:
        """The same examples with the federation's preprocessing; raises `PeerError` if they do not fit."""
        for data in (self.train, self.held_out):
            if len(data) and data.input_shape != task.model.input_shape:
                raise PeerError(
                    f"the model takes {task.model.input_shape}, this device's data is {data.input_shape}",
                    reason=Reason.INCOMPATIBLE,
                )
            if data.num_classes > task.model.num_classes:
                raise PeerError(
                    f"the model has {task.model.num_classes} classes, the data {data.num_classes}",
                    reason=Reason.INCOMPATIBLE,
                )
        return LocalData(
            replace(self.train, preprocessing=task.preprocessing),
            replace(self.held_out, preprocessing=task.preprocessing),
        )


@dataclass(frozen=True)
class Workplace:
    """Where a device works: its blobs, its data, the folder for finished models, its chunk size."""

    device: str
    store: BlobStore
    data: LocalData
    models: Path
    chunk_bytes: int = CHUNK_BYTES
