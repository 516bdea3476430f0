"""The interface of learning tasks: frozen records of functions of arrays, one entry each in the registry.

Nothing here needs torch. A loss is named; `losses` has it in numpy, `training.evaluation` in torch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
LabelKind = Literal["classes", "flags", "numbers", "boxes", "none"]
"""Labels int64 [N], float32 [N, L] twice, [N, M, 5] (`detection`), or none at all."""
MIN_SCORES = 20  # examples from which a threshold is taken; of fewer than 100 it is about the largest score


@dataclass(frozen=True, eq=False)
class Answers:
    """A network's `outputs` [N, L] for N examples, the `targets` of its loss, and the examples' labels.

    `naive` are the forecasts of `naive.naive_forecasts` [N, 2, L], empty [0] for other tasks.
    """

    outputs: Array
    targets: Array
    labels: Array
    naive: Array = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def join(cls, parts: "Sequence[Answers]") -> "Answers":
        """The answers of all parts, of which there is at least one."""
        return cls(*(np.concatenate([getattr(part, key.name) for part in parts]) for key in fields(cls)))


@dataclass(frozen=True)
class Metric:
    """One figure of merit; `of` is None where the examples do not define it.

    A `share` lies between 0 and 1. Figures of several clients add up as means of this `power`, weighted by
    examples: the root of a mean square has 2. Where the task has `counts`, these add up instead, and
    `of_counts` is the figure of the first `width` of each class [L, width].
    """

    name: str
    of: Callable[[Answers], float | None]
    higher_is_better: bool = True
    share: bool = True
    power: int = 1
    of_counts: Callable[[Array], float | None] | None = None
    width: int = 0

    def text(self, value: float) -> str:
        """`93.12%` of a share, else `0.1234` or `12,345`."""
        if self.share:
            return f"{value:.2%}"
        return f"{value:,.0f}" if 9999.5 <= abs(value) < 1e7 else f"{value:.4g}"

    def worsening(self, before: float, after: float) -> float:
        """By how much `after` is worse: the difference of shares, else relative; negative if better."""
        worse = before - after if self.higher_is_better else after - before
        if self.share or not worse:
            return worse
        return worse / abs(before) if before else float("inf") * np.sign(worse)

    def pool_values(self, values: Sequence[float], examples: Sequence[float]) -> float | None:
        """The figure over all clients from each one's, weighted by its examples; None without any."""
        total = sum(examples)
        if not total:
            return None
        mean = sum(count * value**self.power for value, count in zip(values, examples, strict=True)) / total
        return float(mean ** (1 / self.power))

    def pool_counts(self, counts: Sequence[Sequence[Sequence[int]]]) -> float | None:
        """The figure over all clients from each one's counts; None unless every one has enough of them."""
        widths = [len(each[0]) if each else 0 for each in counts]
        if self.of_counts is None or min(widths, default=0) < self.width:
            return None
        return self.of_counts(np.sum([[row[: self.width] for row in each] for each in counts], 0))


@dataclass(frozen=True)
class LearningTask:
    """What a network learns.

    - `targets` are what the loss compares outputs with, from inputs [N, ...] and labels;
    - `outputs` is their number, from that of the labels' names and the shape of an input;
    - `width` is L of outputs [N, L] for that number, which may be several for each;
    - `metrics` are figures of merit, the leading one first;
    - `references` are the leading one's values for naive answers, which need no model;
    - `errors` [N] order two models' answers for one example: the smaller is better;
    - `by_output` names one figure for each output [L], which is NaN where it is not defined;
    - `by_class` counts each class's examples and those of them that are recognised, [L, 2];
    - `counts` are whole numbers of each class, [L, W], from which metrics of several clients are made;
    - `answers` turn outputs [N, L] into what a user gets for raw inputs [N, ...];
    - `usual` is the share of usual examples that no alarm is to be raised for, where answers are scores.
    """

    name: str
    summary: str
    labels: LabelKind
    loss: str
    metrics: tuple[Metric, ...]
    errors: Callable[[Answers], Array]
    by_output: tuple[str, Callable[[Answers], Array]] | None
    answers: Callable[[Array, Array], Array]
    targets: Callable[[Array, Array], Array] = lambda inputs, labels: labels
    outputs: Callable[[int, tuple[int, ...]], int] = lambda labels, shape: labels
    width: Callable[[int, tuple[int, ...]], int] = lambda outputs, shape: outputs
    by_class: Callable[[Answers], Array] | None = None
    counts: Callable[[Answers], Array] | None = None
    usual: float | None = None
    references: tuple[Metric, ...] = ()

    @property
    def figures(self) -> tuple[Metric, ...]:
        return (*self.metrics, *self.references)

    @property
    def counted_things(self) -> str:
        """What `by_class` counts, in words."""
        return "boxes" if self.labels == "boxes" else "examples"

    @property
    def is_ranked(self) -> bool:
        """Whether answers are probabilities, of which users want the largest."""
        return self.labels in ("classes", "flags")

    @property
    def exclusive(self) -> bool:
        """Whether each example has exactly one class."""
        return self.labels == "classes"

    @property
    def has_named_outputs(self) -> bool:
        """Whether each output has a name, on which all devices must agree."""
        return self.labels != "none"

    def leading(self, found: Mapping[str, float]) -> Metric:
        """The metric that decides where models are compared: the first of those that were `found`."""
        return next((metric for metric in self.metrics if metric.name in found), self.metrics[0])

    def threshold(self, answers: Answers) -> float | None:
        """The score that a share `usual` of the examples with label 0 do not exceed; None from too few."""
        scores = self.errors(answers)[answers.labels == 0] if self.usual is not None else ()
        if self.usual is None or len(scores) < MIN_SCORES:
            return None
        return float(np.quantile(scores, self.usual))

    def measure_answers(self, answers: Answers) -> dict[str, float]:
        """Every metric that the examples define, by name; values that are not finite are left out."""
        found = {metric.name: metric.of(answers) for metric in self.figures}
        return {name: value for name, value in found.items() if value is not None and np.isfinite(value)}
