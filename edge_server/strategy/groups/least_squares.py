"""Heads solved from sums: ridge regression, nearest class means; the loss of any head on anyone's data."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Features = NDArray[np.intp]  # columns of a head's weight

RATIOS = tuple(10.0 ** (power / 2) for power in range(-12, 5))
"""The penalties that are tried, over the mean variance of a feature."""
USUAL_RATIO = 1e-2  # Where no examples are held out to choose by
SMALLEST_VARIANCE = 1e-6  # Of features within a class
SHARPNESS = 2.0
"""Measured on digits: with it the cross-entropy of 500 others is within 10 % of the least for any factor."""
MARGIN = 5.0  # Logits by which a class's mean is likelier than the nearest other, on average and at most
MIN_TESTED = 3  # Devices among which one is tested on the others
LEAST_ERROR = 1e-2  # Bounds the scale of scores where a head makes no errors on few examples


@dataclass(frozen=True, eq=False)
class Sums:
    """Over examples with features f [R], of which the last is 1, and targets y [L]: the sums of f f^T [R, R],
    f y^T [R, L] and |y|^2. The gram is empty [0, 0] where only means are wanted.
    """

    gram: Floats
    targets: Floats
    squares: float

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(self.gram + other.gram, self.targets + other.targets, self.squares + other.squares)

    def __sub__(self, other: "Sums") -> "Sums":
        return Sums(self.gram - other.gram, self.targets - other.targets, self.squares - other.squares)

    def with_weight(self, weight: float) -> "Sums":
        return Sums(self.gram * weight, self.targets * weight, self.squares * weight)

    @property
    def examples(self) -> float:
        return float(self.gram[-1, -1] if self.gram.size else self.targets[-1].sum())

    def of_features(self, features: Features) -> "Sums":
        """The sums of these features alone, and of the last one: their block of both matrices."""
        rows = np.append(features, len(self.targets) - 1)
        gram = self.gram[np.ix_(rows, rows)] if self.gram.size else self.gram
        return replace(self, gram=gram, targets=self.targets[rows])


@dataclass(frozen=True, eq=False)
class Head:
    """Scores of features f [D]: weight^T f + offset, with weight [D, L] and offset [L]."""

    weight: Floats
    offset: Floats

    def with_scale(self, factor: float | Floats) -> "Head":
        return Head(self.weight * factor, self.offset * factor)


def total_of(sums: Iterable[Sums]) -> Sums:
    return reduce(add, sums)


def total_parts(devices: Iterable["Parts"]) -> "Parts":
    """The sums of all devices, of which one is in memory at a time; there is at least one."""
    return reduce(
        lambda total, own: [part + of_own for part, of_own in zip(total, own, strict=True)], devices
    )


@dataclass(frozen=True, eq=False)
class Centred:
    """The sums around the means [D], [L], which are 0 for a head without bias: of it only weights matter."""

    gram: Floats
    targets: Floats
    mean: Floats
    target_mean: Floats

    @classmethod
    def of(cls, sums: Sums, *, bias: bool) -> "Centred":
        mean, target_mean = sums.gram[-1, :-1], sums.targets[-1]
        count = max(1.0, sums.examples) if bias else np.inf
        mean, target_mean = mean / count, target_mean / count
        weight = 0.0 if not bias else count
        return cls(
            sums.gram[:-1, :-1] - weight * np.outer(mean, mean),
            sums.targets[:-1] - weight * np.outer(mean, target_mean),
            mean,
            target_mean,
        )

    def penalty(self, ratio: float) -> float:
        """The ridge's lambda: the ratio times the mean diagonal, which grows with the examples."""
        return float(ratio * max(np.trace(self.gram) / max(1, len(self.gram)), np.finfo(float).tiny))

    def head(self, weight: Floats) -> Head:
        return Head(weight, self.target_mean - self.mean @ weight)


def ridge(sums: Sums, ratio: float, *, bias: bool = True) -> Head:
    """The head of least squares with the penalty lambda |weight|^2: (G + lambda I)^-1 C around the means.

    Its bias is not penalised. The solution is that of all examples in one place, however they are shared out
    (Fani et al. 2024, Fed3R, equation 4).
    """
    centred = Centred.of(sums, bias=bias)
    penalised = centred.gram + centred.penalty(ratio) * np.eye(len(centred.gram))
    return centred.head(np.asarray(np.linalg.solve(penalised, centred.targets), np.float64))


def noisy_ridge(sums: Sums, ratio: float, deviation: float, *, bias: bool = True) -> Head:
    """As `ridge`, of sums whose numbers have noise of this deviation.

    A symmetric matrix of such noise has eigenvalues up to 2 deviation sqrt(R) (Wigner 1958): so much is added
    to the penalty, and eigenvalues below 0 count as 0. The penalty that grows with the noise is that of
    Wang 2018 (Revisiting differentially private linear regression, algorithm 2).
    """
    centred = Centred.of(sums, bias=bias)
    values, vectors = np.linalg.eigh(centred.gram)
    known = np.maximum(values, 0)
    penalty = ratio * known.mean() + 2 * deviation * len(sums.gram) ** 0.5
    penalised = np.maximum(known + penalty, np.finfo(float).tiny)
    weight: Floats = vectors @ ((vectors.T @ centred.targets) / penalised[:, None])
    return centred.head(weight)


def loss(sums: Sums, head: Head) -> float:
    """The sum of squared errors of a head on the examples of the sums: tr(W^T G W) - 2 tr(W^T C) + |Y|^2."""
    whole = np.concatenate([head.weight, head.offset[None]])
    return float(np.sum((sums.gram @ whole - 2 * sums.targets) * whole) + sums.squares)


def choose_ratio(fitted: Sums, held_out: Sums, *, bias: bool = True) -> float:
    """The ratio of `RATIOS` whose head of the first sums has the least loss on the second ones."""
    if min(fitted.examples, held_out.examples) < 1:
        return USUAL_RATIO
    centred = Centred.of(fitted, bias=bias)
    values, vectors = np.linalg.eigh(centred.gram)
    turned = vectors.T @ centred.targets
    # In the eigenvectors' coordinates each head costs a division.
    basis = np.zeros((len(vectors) + 1, len(vectors) + 1))
    basis[:-1, :-1], basis[-1, -1] = vectors, 1
    own = Sums(basis.T @ held_out.gram @ basis, basis.T @ held_out.targets, held_out.squares)
    mean: Floats = centred.mean @ vectors

    def loss_of(ratio: float) -> float:
        weight: Floats = turned / (np.maximum(values, 0) + centred.penalty(ratio))[:, None]
        return loss(own, Head(weight, centred.target_mean - mean @ weight))

    return float(min(RATIOS, key=loss_of))


Parts = Sequence[Sums]  # of the examples to fit, and of those that are held out
HARM = 0.02
"""Share of the squared error by which a device's sums may raise that of all others. Of 20 devices with 57
digits each, honest ones cost 0.5 % at most, and flipped labels that count five times 15 %."""


@dataclass(frozen=True)
class Tested:
    """A device's sums tested on all others, in squared errors per example.

    The others' examples held out have the error `with_it` and `without_it`; the head of all others has the
    error `own` on the device's examples, where no answer at all has the error `none`.
    """

    with_it: float
    without_it: float
    own: float
    none: float

    @property
    def cost(self) -> float:
        return self.with_it - self.without_it

    @property
    def is_suspect(self) -> bool:
        """Whether the device costs the others much, and what they know is worse than nothing to it."""
        return self.cost > HARM * self.without_it and self.own > self.none


def leave_one_out(
    devices: Mapping[str, Callable[[], Parts]], ratio: float, *, bias: bool = True
) -> tuple[dict[str, Tested], tuple[str, ...]]:
    """Every device's sums tested on those of all others, and the suspects, the worst first.

    With each suspect that is found the rest are tested again without it: it makes others look bad. At most
    half of the devices are suspects.
    """
    whole = total_parts(read() for read in devices.values())
    tested, suspects, left = dict[str, Tested](), list[str](), dict(devices)
    while len(left) >= MIN_TESTED and len(suspects) < len(devices) // 2:
        head = ridge(whole[0], ratio, bias=bias)
        found = {name: _test(read(), whole, head, ratio, bias=bias) for name, read in left.items()}
        tested |= found
        worst = max(found, key=lambda name: found[name].cost * found[name].is_suspect)
        if not found[worst].is_suspect:
            break
        suspects.append(worst)
        own = left.pop(worst)()
        whole = [part - part_of for part, part_of in zip(whole, own, strict=True)]
    return tested, tuple(suspects)


def _test(own: Parts, whole: Parts, head: Head, ratio: float, *, bias: bool) -> Tested:
    others = [part - part_of for part, part_of in zip(whole, own, strict=True)]
    without = ridge(others[0], ratio, bias=bias)
    count, data = max(1.0, others[1].examples), total_of(own)
    examples = max(1.0, data.examples)
    return Tested(
        loss(others[1], head) / count,
        loss(others[1], without) / count,
        loss(data, without) / examples,
        data.squares / examples,
    )


def score_scale(held_out: Sums, head: Head) -> float:
    """The factor that makes logits of a head's scores of one-hot targets: `SHARPNESS` over their error.

    The error is the root of the mean square per class on the examples held out.
    """
    count = held_out.examples * len(head.offset)
    return SHARPNESS / max(loss(held_out, head) / count, LEAST_ERROR) ** 0.5 if count else 1.0


def class_scales(sums: Sums) -> Floats:
    """Factors [L] of the scores of one-hot targets, 1 over the root of a class's share of the examples.

    A head of least squares then is that of targets which are as long for each class, and prefers none that
    has more examples (Webb and Lowe 1990). With equal shares, and for a class without examples, they are 1.
    """
    counts = sums.targets[-1]
    return np.sqrt(np.where(counts > 0, counts.sum() / len(counts) / np.maximum(counts, 1), 1))


def class_means(sums: Sums, *, bias: bool = True) -> Head:
    """The head that chooses the class with the nearest mean (Legate et al. 2023, FedNCM).

    Of equally wide classes the log-probability of m is (m^T f - |m|^2 / 2) / v up to a constant, where v is a
    feature's variance within a class; `squares` is here the sum of f's mean square. Features depend on each
    other, so that scores are too sure of themselves: `MARGIN` bounds them. Without a bias all means have
    length 1. A class without examples has the mean of all, and is less likely by the widest distance of two.
    """
    counts = sums.targets[-1]
    count = max(1.0, counts.sum())
    overall = sums.targets[:-1].sum(1) / count
    means = np.where(counts > 0, sums.targets[:-1] / np.maximum(counts, 1), overall[:, None])
    lengths = np.square(means).sum(0)
    if not bias:
        return Head(means / np.sqrt(np.where(lengths > 0, lengths, 1)), np.zeros(len(counts)))
    distance = np.square(means - overall[:, None]).sum(0).max(initial=0)
    offset = -lengths / 2 - np.where(counts > 0, 0, distance)
    variance = (sums.squares - counts @ lengths / max(1, len(means))) / count
    between = np.square(means[:, :, None] - means[:, None]).sum(0)[:, counts > 0][counts > 0]
    nearest = np.sort(between, 1)[:, 1:2].mean() / 2 if len(between) > 1 else SMALLEST_VARIANCE
    factor = min(1 / max(variance, SMALLEST_VARIANCE), MARGIN / max(nearest, SMALLEST_VARIANCE))
    return Head(means, offset).with_scale(factor)


@dataclass(frozen=True, eq=False)
class Scatter:
    """How far devices' class means [D] lie from those of all: the sum of n d d^T [D, D] and its degrees.

    Of examples drawn alike the mean of n has a covariance of 1/n of theirs, so that `total` / `degrees` is
    the covariance within classes, found without one product of features (FedCOF, arXiv 2412.14326).
    """

    total: Floats
    degrees: int

    @classmethod
    def of(cls, devices: Iterable[Parts], whole: Sums) -> "Scatter":
        """Each part of each device has class means of its own; all classes count as equally wide."""
        counts = whole.targets[-1]
        means = whole.targets[:-1] / np.maximum(counts, 1)
        total, degrees = np.zeros((len(means), len(means))), -int((counts > 0).sum())
        for part in (part for parts in devices for part in parts):
            own = part.targets[-1]
            there = own > 0
            apart = (part.targets[:-1] / np.maximum(own, 1) - means)[:, there] * np.sqrt(own[there])
            total, degrees = total + apart @ apart.T, degrees + int(there.sum())
        return cls(total, max(0, degrees))


def class_covariances(sums: Sums, scatter: Scatter, *, bias: bool = True) -> Head:
    """As `class_means`, where the nearest mean is that in units of the covariance within classes.

    The log-probability of m is m^T S^-1 f - m^T S^-1 m / 2 up to a constant. The scatter of few devices has a
    low rank: S counts as many examples more, as wide in all directions as features are on average within a
    class, as there are features.
    """
    counts, count = sums.targets[-1], max(1.0, sums.targets[-1].sum())
    overall = sums.targets[:-1].sum(1) / count
    means = np.where(counts > 0, sums.targets[:-1] / np.maximum(counts, 1), overall[:, None])
    features = len(means)
    variance = max(
        float(sums.squares - counts @ np.square(means).sum(0) / features) / count, SMALLEST_VARIANCE
    )
    prior = features * variance * np.eye(features)
    covariance = (scatter.total + prior) / (scatter.degrees + features)
    weight: Floats = np.linalg.solve(covariance, means - overall[:, None])
    offset = -(weight * (means + overall[:, None])).sum(0) / 2
    distances = ((means - overall[:, None]) * weight).sum(0)
    offset = offset - np.where(counts > 0, 0, distances.max(initial=0))
    head = Head(weight, offset if bias else np.zeros(len(counts)))
    nearest = float(distances[counts > 0].mean()) if (counts > 0).any() else 0.0
    return head.with_scale(min(1.0, MARGIN / max(nearest, SMALLEST_VARIANCE)))
