"""Forgiven is what unlike data do to a model, prior and confidence; taking inputs for others is not."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch

from edge_client.training.evaluation import loss_of, squared_error
from edge_server.coordinator.validation import calibration
from edge_server.coordinator.validation.calibration import Minimum, calibrate, minimize
from tests.slow import mark_slow

CLASSES, COUNT = 5, 400
RNG = np.random.default_rng(7)
TARGETS = torch.from_numpy(RNG.integers(CLASSES, size=COUNT))
OUTPUTS = 2 * torch.nn.functional.one_hot(TARGETS, CLASSES) + torch.from_numpy(
    RNG.normal(size=(COUNT, CLASSES))
)
CROSS_ENTROPY = loss_of("classification")
PRIOR_SHIFT = torch.tensor([4.0, 0.0, -3.0, 0.0, 1.0])


def calibrated(outputs: torch.Tensor) -> float:
    return calibrate(CROSS_ENTROPY, outputs, TARGETS).loss


@pytest.mark.parametrize("changed", [OUTPUTS + PRIOR_SHIFT, 8 * OUTPUTS, OUTPUTS / 5])
def test_prior_and_confidence_are_forgiven(changed):
    assert float(CROSS_ENTROPY(changed, TARGETS)) > float(CROSS_ENTROPY(OUTPUTS, TARGETS)) + 0.3
    assert calibrated(changed) == pytest.approx(calibrated(OUTPUTS), abs=0.02)


def test_a_class_that_one_device_has_raised_is_forgiven_further_than_by_one_scale(monkeypatch):
    """A device of that class alone raises its output, the more the larger the input."""
    sizes = torch.from_numpy(np.random.default_rng(3).gamma(2.0, size=COUNT))
    changed = OUTPUTS.clone()
    changed[:, 0] = 6 * OUTPUTS[:, 0] + 4 * sizes
    harm = calibrated(changed) - calibrated(OUTPUTS)
    monkeypatch.setattr(calibration, "ALIKE", 1e6)
    assert 0 < harm < 0.8 * (calibrated(changed) - calibrated(OUTPUTS))


@pytest.mark.parametrize("changed", [OUTPUTS.flip(1), -OUTPUTS])
def test_inputs_taken_for_others_are_not(changed):
    """No scale above 0 and no bias makes them better than a model that knows nothing: ln 5 = 1.61."""
    assert calibrated(changed) == pytest.approx(math.log(CLASSES), abs=0.1)
    assert calibrated(OUTPUTS) < 0.8


def test_numbers_may_be_shifted_and_scaled():
    targets = torch.from_numpy(RNG.normal(size=(COUNT, 1))).float()
    assert calibrate(squared_error, 3 * targets + 2, targets).loss == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_outputs_that_are_not_finite_are_the_worst(bad):
    outputs = OUTPUTS.clone()
    outputs[3, 1] = bad
    assert calibrated(outputs) == math.inf


def test_the_smallest_value_of_a_quadratic_function_is_found():
    """(x - 1)^2 + 10 (y + 2)^2 is 0 at (1, -2)."""
    scale, least = torch.tensor([1.0, 10.0]), torch.tensor([1.0, -2.0])
    found, minimum = minimize(lambda at: (scale * (at - least).square()).sum(), Minimum(torch.zeros(2)))
    assert found == pytest.approx(0, abs=1e-6)
    torch.testing.assert_close(minimum.point, least, rtol=0, atol=1e-3)


@mark_slow
def test_a_fit_imports_no_compiler():
    """The optimizers of torch import it: 1.2 s of processor time and 80 MB of each server."""
    script = """
import sys
import torch
from edge_server.coordinator.validation.calibration import Minimum, calibrate, minimize

calibrate(torch.nn.functional.cross_entropy, torch.eye(3), torch.arange(3))
print("torch._dynamo" in sys.modules)
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


def test_from_a_similar_fit_the_same_loss_is_found_in_a_few_steps():
    asked = 0

    def counted(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        nonlocal asked
        asked += 1
        return CROSS_ENTROPY(outputs, targets)

    similar = calibrate(CROSS_ENTROPY, 1.02 * OUTPUTS, TARGETS)
    alone = calibrate(counted, OUTPUTS, TARGETS)
    of_all, asked = asked, 0
    assert calibrate(counted, OUTPUTS, TARGETS, similar).loss == pytest.approx(alone.loss, abs=1e-4)
    assert asked < of_all / 2


@pytest.mark.parametrize("factor", [-1e4, 1e4, 1e-4])
def test_from_the_fit_of_a_model_that_answers_nothing_the_same_loss_is_found(factor):
    """Its scale is so far away that the loss of the other model hardly changes there."""
    similar = calibrate(CROSS_ENTROPY, factor * OUTPUTS, TARGETS)
    found = calibrate(CROSS_ENTROPY, OUTPUTS, TARGETS, similar).loss
    assert found == pytest.approx(calibrated(OUTPUTS), abs=0.02)
