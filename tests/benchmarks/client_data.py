"""Each client's share of MNIST in its own file, so that no client loads the data of others."""

from pathlib import Path

import numpy as np

IMAGES = 600
"""Images per client."""


def write_clients(data_root: Path, folder: Path, count: int, *, images: int = IMAGES) -> None:
    """Write `client-<n>.npz`, n from 0: `x_train` [images, 1, 28, 28] uint8, `y_train`; raises `OSError`."""
    raw = data_root / "MNIST" / "raw"
    pixels = np.fromfile(raw / "train-images-idx3-ubyte", np.uint8, offset=16).reshape(-1, 1, 28, 28)
    labels = np.fromfile(raw / "train-labels-idx1-ubyte", np.uint8, offset=8).astype(np.int64)
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(count):
        mine = slice(index * IMAGES, index * IMAGES + images)
        given = {"x_train": pixels[mine], "y_train": labels[mine]}
        # With an official test split, clients train on all of `x_train`.
        np.savez(folder / f"client-{index}.npz", **given, x_test=pixels[:1], y_test=labels[:1])
