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

from tests.step_graphs.cases import Case, Network, network, objectives, plan
from tests.step_graphs.double import DoubleSession
from tests.step_graphs.following import follow, moved, trained
from tests.step_graphs.graphs import drawn
from tests.step_graphs.recorded import Arrays, Outputs, Step, recorded

LIMIT = 1e-5
"""Largest norm of a difference in float32."""
FORMULA = 1e-6
"""Largest norm of a difference in double precision, from constants of a graph that are float32."""
ROUNDING = 10.0
"""How many times torch's own rounding counts as the same."""


@dataclass(frozen=True)
class Difference:
    """Norms of differences from torch, relative to the norm of torch's.

    `formula`: gradients and running statistics in double precision, the largest of the first epoch's steps.
    `update`: what the optimizer makes of torch's gradients, relative to torch's change, and its state; the
    largest of all steps.
    `gradient`: gradients from onnxruntime, the median of all steps.
    `step`: parameters and running statistics after a step in onnxruntime from torch's state, the largest of all
    steps.
    `own_gradient`, `own_step`: as much of torch itself, from double precision, in the first epoch.
    `free`: parameters and running statistics after all steps, of which only the first is from torch's state.
    """

    case: Case
    formula: float
    update: float
    gradient: float
    own_gradient: float
    step: float
    own_step: float
    free: float

    @property
    def is_close(self) -> bool:
        """Whether the single steps are torch's without an allowance for rounding."""
        return self.is_same and self.step <= LIMIT

    @property
    def is_same(self) -> bool:
        """Whether the formulas are torch's, and single steps in onnxruntime differ by rounding."""
        return (
            self.formula <= FORMULA
            and self.update <= LIMIT
            and self.gradient <= max(LIMIT, ROUNDING * self.own_gradient)
            and self.step <= max(LIMIT, ROUNDING * self.own_step)
        )


def compared(case: Case) -> Difference:
    """Train the case with both."""
    found = network(case.model, case.tier)
    return difference(case, found, drawn(found, objectives(case)))


def difference(case: Case, found: Network, graphs: Mapping[str, bytes]) -> Difference:
    """Train the network with torch and with these graphs."""
    torch.set_num_threads(1)
    steps = recorded(case, found)
    own = [_rounding(case, step, step.exact) for step in steps if step.exact is not None]
    ours = _in_onnxruntime(case, found, graphs, steps)
    return Difference(
        case,
        _formula(case, found, graphs, steps),
        _largest([_update(case, step) for step in steps]),
        float(np.median([gradient for gradient, _ in ours])),
        float(np.median([gradient for gradient, _ in own])),
        _largest([step for _, step in ours]),
        _largest([step for _, step in own]),
        _free(case, found, graphs, steps),
    )


def _formula(case: Case, found: Network, graphs: Mapping[str, bytes], steps: Sequence[Step]) -> float:
    differences: list[float] = []

    def note(step: Step, arrays: Arrays, gradients: Arrays) -> None:
        assert step.exact is not None
        differences.append(relative(gradients, step.exact.gradients))
        differences.append(relative(arrays, step.exact.buffers))

    in_double = [step for step in steps if step.exact is not None]
    follow(case, found, graphs, in_double, note, session=DoubleSession)
    return _largest(differences)


def _update(case: Case, step: Step) -> float:
    ours, after = moved(plan(case), step, step.gradients), step.after
    change = {name: after.arrays[name] - step.before.arrays[name] for name in step.gradients}
    weights = relative(ours.arrays, {name: after.arrays[name] for name in change}, norm(change))
    return _largest([weights, *(relative(ours.optimizer[kind], a) for kind, a in after.optimizer.items())])


def _in_onnxruntime(
    case: Case, found: Network, graphs: Mapping[str, bytes], steps: Sequence[Step]
) -> list[tuple[float, float]]:
    """The differences of each step's gradients, and of what it makes of torch's state."""
    differences: list[tuple[float, float]] = []

    def note(step: Step, arrays: Arrays, gradients: Arrays) -> None:
        ours = {**arrays, **moved(plan(case), step, gradients).arrays}
        differences.append((relative(gradients, step.gradients), relative(ours, step.after.arrays)))

    follow(case, found, graphs, steps, note)
    return differences


def _rounding(case: Case, step: Step, exact: Outputs) -> tuple[float, float]:
    """The same differences of torch's step from one with the outputs of double precision."""
    ours = {**step.after.arrays, **exact.buffers, **moved(plan(case), step, exact.gradients).arrays}
    return relative(step.gradients, exact.gradients), relative(ours, step.after.arrays)


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
