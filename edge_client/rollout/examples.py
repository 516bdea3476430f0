"""The examples on which two models are compared, as a file for the process that does it."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np

from edge_client.data.labelled import LabelledData, sample
from edge_client.files import write_synced
from edge_client.workplace import LocalData

CALIBRATION = 100


def local_examples(data: LocalData, most: int) -> LabelledData:
    """Some of what the device never trains on, always the same; of what it does, where there is nothing else.

    One example at least, for without any nothing could be run at all.
    """
    held_out = data.held_out if len(data.held_out) else data.train
    return sample(held_out, max(1, most))


def write_examples(path: Path, data: LocalData, most: int) -> int:
    """Write `most` examples at most, and some to calibrate by; returns how many there are to compare on."""
    chosen, calibration = local_examples(data, most), sample(data.train, CALIBRATION)
    buffer = BytesIO()
    np.savez(buffer, images=chosen.images, labels=chosen.labels, calibration=calibration.images)
    write_synced(path, buffer.getvalue(), durable=False)
    return len(chosen)
