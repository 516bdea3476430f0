"""Detects whether a source has changed since it was read, from its files or its examples."""

import hashlib
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge_client.data.dataset import LabelledData, Pixels

SETTLED_S = 3600  # seconds without a change after which a last line without a line end counts as whole

Mark = bytes
Marks = NDArray[np.int64]


def mark_of_files(paths: Iterable[Path]) -> Mark:
    """Names, sizes and times of files, and of all files of folders; a missing file has a mark, too."""
    files = [file for path in paths for file in (sorted(path.rglob("*")) if path.is_dir() else [path])]
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        try:
            found = file.stat()
        except OSError:
            continue
        digest.update(f"{file}\0{found.st_size}\0{found.st_mtime_ns}\0".encode(errors="surrogateescape"))
    return digest.digest()


def settles_at(path: Path, rest_s: float = SETTLED_S) -> float | None:
    """When, in seconds since 1970, a file will have stayed the same for `rest_s`; None if it has.

    A file of the future is none that is being written: a board without a clock starts in the past.
    """
    try:
        changed = path.stat().st_mtime
    except OSError:
        return None
    return changed + rest_s if abs(time.time() - changed) < rest_s else None


def is_past(moment: float | None) -> bool:
    """Whether a moment, in seconds since 1970, has come; none never does."""
    return moment is not None and time.time() >= moment


def mark_of_examples(data: LabelledData) -> Mark:
    """The mark of a function's result: its arrays and class names."""
    digest = hashlib.blake2b("\0".join(data.class_names).encode(errors="replace"), digest_size=16)
    for array in (data.images, data.labels):
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.digest()


def marks_of_images(images: Pixels, sizes: Marks | None = None) -> Marks:
    """One number per example [N, ...], which identifies it in later data.

    Of pictures on a common canvas, which grows with the largest, those of their own height and width `sizes`
    [N, 2] count.
    """
    own = images if sizes is None else [image[:, :h, :w] for image, (h, w) in zip(images, sizes, strict=True)]
    digests = b"".join(hashlib.blake2b(image.tobytes(), digest_size=8).digest() for image in own)
    return np.frombuffer(digests, np.int64)
