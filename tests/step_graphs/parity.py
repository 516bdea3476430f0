"""Training without torch compared with torch's loop: each of 20 steps from torch's state, and all 20 freely.

In float32 rounding decides whether a unit whose input is nearly 0 has a gradient, and Adam makes a whole step
of a gradient that is 0 but for rounding. The formulas are therefore compared in double precision, and the
optimizer's apart, with equal gradients.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
import torch

from tests.step_graphs.cases import Case, Network, objectives, plan, small_network
from tests.step_graphs.double import DoubleSession
from tests.step_graphs.following import follow, moved, trained
from tests.step_graphs.graphs import drawn
from tests.step_graphs.recorded import Arrays, Exact, Step, recorded

LIMIT = 1e-5  # largest norm of a difference
FORMULA = 1e-6
"""Largest norm of a difference of passes in double precision, from a graph's constants in float32."""
ROUNDING = 3.0  # how many times torch's own rounding counts as the same


@dataclass(frozen=True)
class Difference:
    """Norms of differences from torch, relative to the norm of torch's; all but `free` from torch's states.

    With passes in double precision, the largest of the first epoch's steps:
    `formula`: gradients and running statistics; `exact_step`: all arrays after the step.
    In float32, the largest of all steps:
    `update`: what the optimizer makes of torch's gradients, relative to torch's change, and its state;
    `step`: all arrays after a step in onnxruntime; `free`: after all steps in onnxruntime.
    `passes`: gradients and running statistics from onnxruntime in float32, the smallest of all steps with as
    many examples; `own_passes`: as much of torch's from those in double precision, the largest.
    """

    case: Case
    formula: float
    exact_step: float
    update: float
    passes: float
    own_passes: float
    step: float
    free: float

    @property
    def is_same(self) -> bool:
        """Whether the steps are torch's, but for rounding in float32."""
        return (
            self.formula <= FORMULA
            and self.exact_step <= LIMIT
            and self.update <= LIMIT
            and self.passes <= max(LIMIT, ROUNDING * self.own_passes)
        )

    @property
    def is_close(self) -> bool:
        """Whether rounding, too, changes no step by more than the limit."""
        return self.is_same and self.step <= LIMIT


def compared(case: Case) -> Difference:
    """Train the case with both."""
    found = small_network(case.model, case.tier)
    return difference(case, found, drawn(found, objectives(case)))


def difference(case: Case, found: Network, graphs: Mapping[str, bytes]) -> Difference:
    """Train the network with torch and with these graphs."""
    torch.set_num_threads(1)
    steps = recorded(case, found)
    exact = _in_double(case, found, graphs, steps)
    ours = _in_onnxruntime(case, found, graphs, steps)
    return Difference(
        case,
        _largest([formula for formula, _ in exact]),
        _largest([step for _, step in exact]),
        _largest([_update(case, step) for step in steps]),
        _quiet(steps, [passes for passes, _ in ours]),
        _largest([_rounding(step, step.exact) for step in steps if step.exact is not None]),
        _largest([step for _, step in ours]),
        _free(case, found, graphs, steps),
    )


def _in_double(
    case: Case, found: Network, graphs: Mapping[str, bytes], steps: Sequence[Step]
) -> list[tuple[float, float]]:
    """The differences of each step's passes, and of the arrays after it, where torch's are exact."""
    differences: list[tuple[float, float]] = []

    def note(step: Step, arrays: Arrays, gradients: Arrays) -> None:
        assert step.exact is not None
        ours = {**arrays, **moved(plan(case), step, gradients).arrays}
        passes = _passes(gradients, arrays, step.exact.gradients, step.exact.buffers)
        differences.append((passes, relative(ours, step.exact.after)))

    in_double = [step for step in steps if step.exact is not None]
    follow(case, found, graphs, in_double, note, session=DoubleSession)
    return differences


def _in_onnxruntime(
    case: Case, found: Network, graphs: Mapping[str, bytes], steps: Sequence[Step]
) -> list[tuple[float, float]]:
    """The same differences from torch's steps in float32."""
    differences: list[tuple[float, float]] = []

    def note(step: Step, arrays: Arrays, gradients: Arrays) -> None:
        ours = {**arrays, **moved(plan(case), step, gradients).arrays}
        passes = _passes(gradients, arrays, step.gradients, _buffers(step))
        differences.append((passes, relative(ours, step.after.arrays)))

    follow(case, found, graphs, steps, note)
    return differences


def _rounding(step: Step, exact: Exact) -> float:
    return _passes(step.gradients, step.after.arrays, exact.gradients, exact.buffers)


def _passes(gradients: Arrays, buffers: Arrays, own_gradients: Arrays, own_buffers: Arrays) -> float:
    return _largest([relative(gradients, own_gradients), relative(buffers, own_buffers)])


def _buffers(step: Step) -> Arrays:
    return {name: array for name, array in step.after.arrays.items() if name not in step.gradients}


def _quiet(steps: Sequence[Step], differences: Sequence[float]) -> float:
    """The smallest difference of each size of batch, and the largest of these."""
    by_size: dict[int, list[float]] = {}
    for step, found in zip(steps, differences, strict=True):
        by_size.setdefault(step.examples, []).append(found)
    return _largest([float(np.min(found)) for found in by_size.values()])


def _update(case: Case, step: Step) -> float:
    ours, after = moved(plan(case), step, step.gradients), step.after
    change = {name: after.arrays[name] - step.before.arrays[name] for name in step.gradients}
    weights = relative(ours.arrays, {name: after.arrays[name] for name in change}, norm(change))
    return _largest([weights, *(relative(ours.optimizer[kind], a) for kind, a in after.optimizer.items())])


def _free(case: Case, found: Network, graphs: Mapping[str, bytes], steps: Sequence[Step]) -> float:
    ours = trained(case, found, graphs)
    return relative(ours, {name: steps[-1].after.arrays[name] for name in ours})


def relative(ours: Arrays, expected: Arrays, size: float | None = None) -> float:
    """The norm of the difference over the norm of `expected`, or over `size`, of all arrays together."""
    apart = norm({name: ours[name].astype(np.float64) - array for name, array in expected.items()})
    return apart / ((norm(expected) if size is None else size) or 1.0)


def norm(arrays: Arrays) -> float:
    """The norm of all arrays together."""
    return sqrt(sum(float(np.sum(array.astype(np.float64) ** 2)) for array in arrays.values()))


def _largest(values: Sequence[float]) -> float:
    """The largest number, and NaN if one is."""
    return float(np.max(values))
