"""The examples on which two models are compared, as a file for the process that does it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from edge_client.data.dataset import LabelledData, Pixels, labelled, sample
from edge_client.data.local import LocalData
from edge_client.storage.atomic_files import written_aside

CALIBRATION = 100
MOST_BYTES = 32_000_000
"""Of large images fewer are compared on: they are copied, and read whole by the other process."""


def local_examples(data: LocalData, most: int) -> LabelledData:
    """Some of what the device never trains on, always the same; of what it does, where there is nothing else.

    One example at least, for without any nothing could be run at all.
    """
    held_out = data.held_out if len(data.held_out) else data.train
    return _sample(held_out, most)


def write_examples(path: Path, data: LocalData, most: int) -> int:
    """Write `most` examples at most, and some to calibrate by; returns how many there are to compare on."""
    chosen, calibration = local_examples(data, most), _sample(data.train, CALIBRATION)
    with written_aside(path, durable=False) as file:
        np.savez(
            file,
            images=chosen.images,
            labels=chosen.labels,
            class_names=np.array(chosen.class_names if chosen.named else (), np.str_),
            resizable=chosen.resizable,
            calibration=calibration.images,
        )
    return len(chosen)


def read_examples(path: Path) -> tuple[LabelledData, Pixels]:
    """The examples to compare on, with this device's own classes, and the images to calibrate by."""
    with np.load(path, allow_pickle=False) as file:
        names = [str(name) for name in file["class_names"]]
        examples = labelled(file["images"], file["labels"], class_names=names)
        return replace(examples, resizable=bool(file["resizable"])), file["calibration"]


def _sample(data: LabelledData, most: int) -> LabelledData:
    """At most so many examples, and `MOST_BYTES`; one at least."""
    if len(data) == 0:
        return data
    fitting = MOST_BYTES // max(1, data.images[:1].nbytes)
    return sample(data, max(1, min(most, fitting)))
