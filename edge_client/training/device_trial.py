"""Which device torch trains on. An accelerator is tried in a process of its own: a driver may crash or hang.

The reference block is trained there and on the processor: gradients must agree, and it must be faster.
"""

import logging
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from edge_client.system.child_process import NoAnswer, answer, ask
from edge_client.system.hardware.board import accelerator
from edge_client.system.hardware.sysfs import ROOT
from edge_client.system.libraries import has_file
from schemas.base import Frozen
from schemas.errors import ConfigError
from schemas.values import Accelerator, AcceleratorKind

if TYPE_CHECKING:
    from torch import Tensor

    from edge_client.training.training_device import TrainingDevice

log = logging.getLogger(__name__)

TRIAL = "edge_client.training.device_trial"
LIMIT_S = 60.0  # a board imports torch for ten seconds and more, and a card builds kernels at its first step
SECONDS = 0.5  # for the steps of each device
MAX_DIFFERENCE = 1e-3  # of gradients, relative to the largest
REMEDY = "install a torch and a driver that fit it, or train where that is possible: --device auto"


class DeviceQuestion(Frozen):
    kind: AcceleratorKind


class DeviceTrial(Frozen):
    """The largest `difference` of gradients, relative to the largest, and how many times as fast it is."""

    found: Accelerator
    difference: float
    speed_up: Annotated[float, Field(ge=0)]


def choose_device(wanted: str, root: Path = ROOT) -> Accelerator | None:
    """The accelerator that torch is to train on; None for the processor.

    `auto` tries what there seems to be. Raises `ConfigError` for one that is asked for and cannot train.
    """
    if wanted == "cpu":
        return None
    for kind in candidates(root) if wanted == "auto" else (wanted,):
        try:
            trial = ask(TRIAL, DeviceQuestion.model_validate({"kind": kind}), DeviceTrial, limit_s=LIMIT_S)
            why = object_to(trial, is_stated=wanted != "auto")
        except NoAnswer as reason:
            why = str(reason)
        if not why:
            log.info("torch trains on %s, %s: %.1f x the processor", kind, trial.found.name, trial.speed_up)
            return trial.found
        if wanted != "auto":
            raise ConfigError(f"torch cannot train there: {why}", key=f"--device {wanted}", remedy=REMEDY)
        log.warning("torch trains on the processor: %s %s", kind, why)
    return None


def candidates(root: Path = ROOT) -> Iterator[AcceleratorKind]:
    """The accelerators that board and torch seem to have, which is read without torch."""
    if accelerator(root) == "cuda" and has_file("torch", "lib/libtorch_cuda.so"):
        yield "cuda"
    if sys.platform == "darwin" and platform.machine() == "arm64":
        yield "mps"


def object_to(trial: DeviceTrial, *, is_stated: bool) -> str:
    """Why torch does not train there; empty if it may."""
    if trial.difference > MAX_DIFFERENCE:
        text = f"gives other gradients: {trial.difference:.2g} of the largest"
        return f"{text}, at most {MAX_DIFFERENCE:g} allowed"
    if is_stated or trial.speed_up > 1:
        return ""
    return f"is {trial.speed_up:.2f} x as fast as the processor"


def try_device(question: DeviceQuestion) -> DeviceTrial:
    from edge_client.training.training_device import CPU, TrainingDevice

    device = TrainingDevice(question.kind)
    device.repeat_bits()
    (wanted, own), (found, there) = (train_block(each) for each in (CPU, device))
    if not found.isfinite().all():
        raise ValueError("its gradients are not finite")
    difference = float((found - wanted).abs().max() / wanted.abs().max())
    return DeviceTrial(found=device.describe(ROOT), difference=difference, speed_up=there / own)


def train_block(device: "TrainingDevice") -> "tuple[Tensor, float]":
    """The gradients of the reference block on a device, and its steps per second there."""
    import torch

    from edge_client.training.device_speed import rate, torch_block

    block, _, step = torch_block(device.name)
    per_second = rate(step, SECONDS)
    gradients = [weight.grad.flatten().cpu() for weight in block.parameters() if weight.grad is not None]
    return torch.cat(gradients), per_second


if __name__ == "__main__":
    sys.exit(answer(DeviceQuestion, try_device))
