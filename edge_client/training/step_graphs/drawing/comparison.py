"""Runs a drawn step in onnxruntime and compares it with torch, before anybody uses it."""

from collections.abc import Mapping
from itertools import takewhile
from typing import Any

import numpy as np
import onnxruntime
import torch
from torch import Tensor

from edge_client.models.graphs.checks import first_line
from edge_client.training.step_graphs.drawing.passes import Passes
from edge_client.training.step_graphs.drawing.refusal import DrawingRefused

COMPARED_EXAMPLES = (5, 16)
COMPARISONS = 3
"""Batches of each size, of which one must agree: rounding decides which of two nearly equal maxima has the
gradient, whereas a wrong graph differs on every batch."""
TOLERANCE = 1e-3
"""Largest norm of the difference from torch, relative to the norm of an output."""
ROUNDING, SENSITIVITY = 1e-7, 100.0
"""Relative disturbance of the parameters, and how many times its effect a graph may differ."""


def compare_with_torch(data: bytes, passes: Passes, input_shape: tuple[int, ...]) -> None:
    """Raise `DrawingRefused` if the graph's outputs differ from torch's at another size of the batch."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    try:
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        # onnxruntime's exceptions share no base class but Exception.
        raise DrawingRefused(f"onnxruntime cannot load the graph: {first_line(error)}") from error
    for examples in COMPARED_EXAMPLES:
        batches = (passes.example(input_shape, examples, seed=seed) for seed in range(COMPARISONS))
        differing = (_first_difference(session, passes, given) for given in batches)
        found = list(takewhile(lambda difference: difference is not None, differing))
        if len(found) == COMPARISONS:
            raise DrawingRefused(f"{found[0]} with {examples} examples")


def _first_difference(session: Any, passes: Passes, given: Mapping[str, Tensor]) -> str | None:
    """The first output that differs from torch's; None if none does."""
    wanted = {value.name for value in session.get_inputs()}
    expected, moved = passes.run(given), passes.run(_disturbed(given, passes))
    outputs = session.run([*expected], {n: t.numpy() for n, t in given.items() if n in wanted})
    # Rounding leaves something of gradients that are 0, such as those of a bias before a normalisation.
    largest = max(float(known.norm()) for known in expected.values())
    for (name, known), output in zip(expected.items(), outputs, strict=True):
        difference = float((torch.from_numpy(np.asarray(output)) - known).norm())
        size = max(float(known.norm()), TOLERANCE * largest)
        allowed = TOLERANCE * size + SENSITIVITY * float((moved[name] - known).norm())
        if not difference <= allowed:
            return f"{name!r} differs from torch by {difference:.3g}"
    return None


def _disturbed(given: Mapping[str, Tensor], passes: Passes) -> dict[str, Tensor]:
    """The inputs with parameters that differ by rounding: deep networks amplify it in small batches."""
    random = torch.Generator().manual_seed(1)
    return {
        name: tensor * (1 + ROUNDING * torch.randn(tensor.shape, generator=random))
        if name in passes.trained
        else tensor
        for name, tensor in given.items()
    }
