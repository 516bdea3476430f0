"""Where a device works: its data, its blobs, its models; all that a task needs beside the task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edge_client.data.local import LocalData
from edge_client.inference.quantization.selection import EXPORT_ALONE, Wish
from edge_client.models.registry import MODELS
from edge_client.storage.blob_store import BlobStore
from edge_client.storage.private_state import PrivateState
from edge_client.system.hardware.sysfs import ROOT
from edge_client.training.checkpoints import EpochCheckpoints
from schemas.errors import PeerError
from schemas.tensors.chunks import CHUNK_BYTES
from schemas.values import Reason

if TYPE_CHECKING:
    from edge_client.training.trainer import LocalWork


@dataclass(frozen=True)
class TaskContext:
    """Where a device works: its blobs, its data, the folder for finished models, what it keeps to itself.

    `model_code` names the factories outside this package that a task may use. With `signed_only` a finished
    model is not served before the server has signed for it; with `checkpoints`, a training that was killed
    goes on after its last finished epoch. `wish` says which variants of a finished model are tried. Below
    `board` lie the `/proc` and `/sys` that say what memory there is. `work` trains; None: this package does.
    `reload_if_changed` returns the data where it has changed since it was asked last.
    """

    device: str
    store: BlobStore
    data: LocalData
    models: Path
    chunk_bytes: int = CHUNK_BYTES
    model_code: frozenset[str] = frozenset()
    private: PrivateState | None = None
    signed_only: bool = False
    checkpoints: EpochCheckpoints | None = None
    wish: Wish = EXPORT_ALONE
    board: Path = ROOT
    work: LocalWork | None = None
    reload_if_changed: Callable[[], LocalData | None] | None = None

    def check_model(self, name: str) -> None:
        """Refuse to import code that only the server has named; raises `PeerError`."""
        if name not in MODELS and name not in self.model_code:
            raise PeerError(
                f"model '{name}' is not one that this device may import: start it with --model-code {name}",
                reason=Reason.INCOMPATIBLE,
            )
