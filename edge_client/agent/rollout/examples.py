"""The examples for a comparison, as a file for its process."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from edge_client.data.dataset import LabelledData, Pixels, make_labelled_data, sample
from edge_client.data.local import LocalData
from edge_client.storage.atomic_files import written_aside
from schemas.values import Preprocessing

CALIBRATION = 100
MAX_BYTES = 32_000_000  # Size limit of the examples, which are copied and read whole by the process


def local_examples(data: LocalData, most: int) -> LabelledData:
    """At most `most` held-out examples, always the same, or training examples if none are held out.

    At least one example if there are any.
    """
    held_out = data.held_out if len(data.held_out) else data.train
    return _sample(held_out, most)


def write_examples(path: Path, data: LocalData, most: int) -> int:
    """Write at most `most` examples, and images for calibration; returns the number of examples."""
    chosen, calibration = local_examples(data, most), _sample(data.train, CALIBRATION)
    with written_aside(path, durable=False) as file:
        np.savez(
            file,
            images=chosen.images,
            labels=chosen.numbers,
            class_names=np.array(chosen.class_names if chosen.named else (), np.str_),
            resizable=chosen.resizable,
            preprocessing=chosen.preprocessing.model_dump_json(),
            calibration=calibration.images,
        )
    return len(chosen)


def read_examples(path: Path) -> tuple[LabelledData, Pixels]:
    """The examples, with this device's own classes, and the images for calibration."""
    with np.load(path, allow_pickle=False) as file:
        names = [str(name) for name in file["class_names"]]
        about = Preprocessing.model_validate_json(str(file["preprocessing"]))
        examples = make_labelled_data(file["images"], file["labels"], class_names=names, preprocessing=about)
        return replace(examples, resizable=bool(file["resizable"])), file["calibration"]


def _sample(data: LabelledData, most: int) -> LabelledData:
    """At most `most` examples and `MAX_BYTES`, but at least one."""
    if len(data) == 0:
        return data
    fitting = MAX_BYTES // max(1, data.images[:1].nbytes)
    return sample(data, max(1, min(most, fitting)))
