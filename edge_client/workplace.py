"""Where a device works: its data, its blobs, its models; all that a task needs beside the task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from edge_client.blobstore import BlobStore
from edge_client.board.reading import ROOT
from edge_client.data.classes import in_classes, misfit
from edge_client.data.fitting import fit, shape_misfit
from edge_client.epochs import EpochCheckpoints
from edge_client.models.registry import MODELS
from edge_client.private import PrivateState
from edge_client.variants.choosing import EXPORT_ALONE, Wish
from schemas.chunks import CHUNK_BYTES
from schemas.errors import PeerError
from schemas.messages import Task
from schemas.values import Reason

if TYPE_CHECKING:
    from edge_client.data.labelled import LabelledData
    from edge_client.local_work import LocalWork


@dataclass(frozen=True)
class LocalData:
    """A device's own examples: what it trains on, and what it never trains on."""

    train: LabelledData
    held_out: LabelledData

    def fewer_than_a_batch(self, task: Task) -> str:
        """That a task's batches are larger than all there is, in words; empty where they are not."""
        plan, count = task.training, len(self.train)
        if plan is None or count >= plan.batch_size:
            return ""
        return (
            f"{count} examples are trained on, fewer than a batch of {plan.batch_size}: a step takes them all"
        )

    def as_the_server_says(self, task: Task) -> LocalData:
        """The same examples as the model takes them, with the federation's preprocessing and labels.

        Raises `PeerError` if they do not fit.
        """
        self.check(task)
        return LocalData(_as_told(self.train, task), _as_told(self.held_out, task))

    def check(self, task: Task) -> None:
        """Raise `PeerError` where the model takes other examples, or knows other classes, than these."""
        for data in (self.train, self.held_out):
            if why := shape_misfit(data, task.model.input_shape) or _unknown_classes(data, task):
                raise PeerError(why, reason=Reason.INCOMPATIBLE)


def _unknown_classes(data: LabelledData, task: Task) -> str:
    names, outputs = task.preprocessing.class_names, task.model.num_classes
    if len(names) > outputs:
        return f"the model has {outputs} classes, the federation names {len(names)}"
    if names or data.named:
        return misfit(data.class_names, names, named=data.named)
    return (
        f"the model has {outputs} classes, the data {data.num_classes}" if data.num_classes > outputs else ""
    )


def _as_told(data: LabelledData, task: Task) -> LabelledData:
    """Inputs of the model's shape, labels as indices into the task's list of classes, if it has one."""
    names = task.preprocessing.class_names
    # Fitted first: what a resized picture is known by is the data that is the same for every task.
    taken = fit(data, task.model.input_shape)
    known = in_classes(taken, names) if names else taken
    return replace(known, preprocessing=task.preprocessing)


@dataclass(frozen=True)
class Workplace:
    """Where a device works: its blobs, its data, the folder for finished models, what it keeps to itself.

    `model_code` names the factories outside this package that a task may use. With `signed_only` a finished
    model is not served before the server has signed for it; with `checkpoints`, a training that was killed
    goes on after its last finished epoch. `wish` says which variants of a finished model are tried. Below
    `board` lie the `/proc` and `/sys` that say what memory there is. `work` trains; None: this package does.
    `look_again` returns the data where it has changed since it was asked last.
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
    look_again: Callable[[], LocalData | None] | None = None

    def check_model(self, name: str) -> None:
        """Refuse to import code that only the server has named; raises `PeerError`."""
        if name not in MODELS and name not in self.model_code:
            raise PeerError(
                f"model '{name}' is not one that this device may import: start it with --model-code {name}",
                reason=Reason.INCOMPATIBLE,
            )
