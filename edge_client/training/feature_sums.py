"""Sums over a device's examples from which the head of a network is solved, without torch.

A head's features f are what it takes, and the number 1 behind them. With targets y (one-hot for classes) the
sums are G = sum f f^T, C = sum f y^T and the sum of |y|^2: all that least squares needs. Nearest class means
need C, and the sum of f's mean square without the 1 in place of the others. An example belongs
to one of two parts by a digest of its inputs, however examples are shared out: most to the first part, a
fifth to the second, by which the server chooses what the first part leaves open. Everything is float64.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Floats = NDArray[np.float64]

GROUP, MEANS_GROUP = "feature-sums", "class-sums"  # with products of features, and without
GRAM, TARGETS, SQUARES = "gram", "targets", "squares"
PARTS = 2
HELD_OUT = 5  # One example in so many belongs to the second part
MAX_FEATURES = 2048  # More are projected onto so many: the sums grow with the square
BATCH = 16
"""Examples per forward pass, always: a network's features of one example may differ in their last bits in
batches of another size."""
SEED = 20240601
STRIP = 4096  # Features that are projected at once


def of_head(head: str, sums: dict[str, Floats]) -> dict[str, Any]:
    """The arrays of either group: the sums under the names that they have for this layer."""
    return {f"{head}/{name}": array for name, array in sums.items()}


def width(features: int) -> int:
    """The rows of the sums of so many features: one more, or those of their projection."""
    return min(features, MAX_FEATURES) + 1


def packed_size(rows: int) -> int:
    """The numbers of a symmetric matrix of so many rows that are sent."""
    return rows * (rows + 1) // 2


def pack(matrix: Floats) -> Floats:
    """The upper triangle of a symmetric matrix [R, R], row by row."""
    return np.concatenate([row[place:] for place, row in enumerate(matrix)])


def unpack(packed: Floats, rows: int) -> Floats:
    """The symmetric matrix [R, R] of `pack`."""
    matrix, start = np.empty((rows, rows)), 0
    for place in range(rows):
        stop = start + rows - place
        matrix[place, place:] = matrix[place:, place] = packed[start:stop]
        start = stop
    return matrix


def signs(features: int) -> Iterator[tuple[slice, Array]]:
    """The projection [features, `MAX_FEATURES`] in strips of rows: random signs, the same everywhere.

    Scaled by one over the root of `MAX_FEATURES`, they keep the products of features on average (Achlioptas
    2003, Database-friendly random projections).
    """
    bits = np.random.PCG64(SEED)
    for start in range(0, features, STRIP):
        rows = min(STRIP, features - start)
        drawn = bits.random_raw(rows * MAX_FEATURES // 64).view(np.uint8)
        strip = np.unpackbits(drawn).reshape(rows, MAX_FEATURES).astype(np.float32)
        yield slice(start, start + rows), (2 * strip - 1) / np.float32(np.sqrt(MAX_FEATURES))


def parts_of(inputs: Array) -> NDArray[np.intp]:
    """The part [N] of each example [N, ...]: 1 for one in `HELD_OUT`, by the bytes of its inputs."""
    return np.array([int(zlib.crc32(one.tobytes()) % HELD_OUT == 0) for one in inputs], np.intp)


class FeatureSums:
    """Adds batches of features [B, D] and targets, class numbers [B] or numbers [B, L], of `outputs` L.

    Without `gram` they are those of class means. The last row of C counts the examples of each class. With a
    `clip` features are `in_clips`, so that it is known by how much an example changes the sums.
    """

    def __init__(self, outputs: int, *, gram: bool = True, clip: float | None = None) -> None:
        self._outputs, self._with_gram, self._clip = outputs, gram, clip
        self._gram: list[Floats] = []
        self._targets: list[Floats] = []
        self._squares = np.zeros(PARTS)

    def add(self, features: Array, targets: NDArray[np.generic], parts: NDArray[np.intp]) -> None:
        columns = with_one(in_clips(project(features), self._clip))
        wanted = self._one_hot(targets)
        if not self._targets:
            rows = columns.shape[1]
            self._targets = [np.zeros((rows, self._outputs)) for _ in range(PARTS)]
            self._gram = [np.zeros((rows, rows)) for _ in range(PARTS)] if self._with_gram else []
        for part in range(PARTS):
            own, answers = columns[parts == part], wanted[parts == part]
            self._targets[part] += own.T @ answers
            squares = np.square(answers).sum(1) if self._with_gram else np.square(own[:, :-1]).mean(1)
            self._squares[part] += float(squares.sum())
            if self._with_gram:
                self._gram[part] += own.T @ own

    def arrays(self) -> dict[str, Floats]:
        """The sums by name, a row for each part; {} without examples."""
        if not self._targets:
            return {}
        sums = {TARGETS: np.stack(self._targets), SQUARES: self._squares}
        return {**sums, GRAM: np.stack([pack(gram) for gram in self._gram])} if self._gram else sums

    def _one_hot(self, targets: NDArray[np.generic]) -> Floats:
        if targets.ndim > 1:
            return targets.astype(np.float64)
        return np.eye(self._outputs)[targets.astype(np.intp)]


def project(features: Array) -> Array:
    """Features [B, D] onto at most `MAX_FEATURES`."""
    if features.shape[1] <= MAX_FEATURES:
        return features
    made = [features[:, rows] @ strip for rows, strip in signs(features.shape[1])]
    return np.asarray(sum(made[1:], made[0]))


def in_clips(features: Array, clip: float | None) -> Array | Floats:
    """Features [B, D] in units of the clip, the longer ones cut to length 1; as they are without a clip."""
    if clip is None:
        return features
    lengths = np.linalg.norm(features.astype(np.float64), axis=1, keepdims=True)
    return np.asarray(features / np.maximum(lengths, clip))


def sensitivity(rows: int, *, gram: bool) -> float:
    """By how much the sums of so many rows differ in L2 without one example with a class, in units of a clip.

    With features f of length 1 at most and a = (f, 1) the upper triangle of a a^T has the squared norm
    (|a|^4 + sum a_i^4) / 2 <= (4 + 2) / 2 = 3, and a y^T has |a|^2 <= 2. Without products the mean square of
    D features, 1 / D at most, takes their place. An example belongs to one of both parts.
    """
    return float(np.sqrt(3 + 2 if gram else 2 + (rows - 1) ** -2.0))


def with_one(features: Array | Floats) -> Floats:
    """The features [B, D] in double precision, with a last column of ones."""
    return np.concatenate([features.astype(np.float64), np.ones((len(features), 1))], 1)


def sum_features(
    features_of: Callable[[Array], Array],
    batches: Iterable[tuple[Array, NDArray[np.generic]]],
    outputs: int,
    *,
    gram: bool,
    clip: float | None = None,
    originals: int,
) -> dict[str, Floats]:
    """The sums over batches of at most `BATCH` inputs [B, ...] with targets; {} without any.

    Features come from whole batches, filled up with zeros. After the `originals` come their mirror images, in
    the same order, and in the same parts: of one that is fitted none is held out.
    """
    sums, parts, start = FeatureSums(outputs, gram=gram, clip=clip), np.empty(originals, np.intp), 0
    for inputs, targets in batches:
        whole = np.zeros((BATCH, *inputs.shape[1:]), np.float32)
        whole[: len(inputs)] = inputs
        parts[start : start + len(inputs)] = parts_of(inputs[: max(0, originals - start)])
        own = parts[np.arange(start, start + len(inputs)) % originals]
        sums.add(features_of(whole)[: len(inputs)], targets, own)
        start += len(inputs)
    return sums.arrays()
