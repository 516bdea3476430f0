"""What torch trains on: the processor, or an accelerator, with its memory and its kernels.

Modules are moved there by `TorchTrainer`; the loop, the objectives and the codecs go where the module is. An
accelerator is tried in a process of its own, since a driver may crash or hang: on the reference block its
gradients must be the processor's, and it must be faster.
"""

import contextlib
import logging
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import Field

from edge_client.system.child_process import NoAnswer, answer, ask
from edge_client.system.hardware.memory import memory
from edge_client.system.hardware.profile import accelerator
from edge_client.system.hardware.sysfs import ROOT
from edge_client.system.lazy_torch import Tensor, nn, torch
from edge_client.system.libraries import has_file
from edge_client.system.process_memory import give_back
from schemas.base import Frozen
from schemas.errors import ConfigError
from schemas.values import Accelerator, AcceleratorKind

log = logging.getLogger(__name__)

CUBLAS_WORKSPACE = ":4096:8"  # with which cuBLAS gives equal bits in equal runs, by its documentation


@dataclass(frozen=True)
class TrainingDevice:
    """The first device of a kind, by torch's name of the kind: `cpu`, `cuda` or `mps`."""

    name: str = "cpu"

    @property
    def is_accelerator(self) -> bool:
        return self.name != "cpu"

    def free_bytes(self, board: Path) -> int | None:
        """Bytes that torch can still take there; None if unknown. `board` is the directory above `/proc`."""
        return FREE_BYTES[self.name](board)

    def describe(self, board: Path) -> Accelerator:
        """The accelerator with its memory; raises torch's errors where it cannot be used."""
        name, memory_bytes, shares = FACTS[self.name]()
        return Accelerator.model_validate(
            {
                "kind": self.name,
                "name": name,
                "memory_bytes": memory_bytes,
                "free_bytes": self.free_bytes(board),
                "shares": shares,
            }
        )

    def give_back(self) -> None:
        """Return what torch keeps for reuse."""
        give_back()
        if self.is_accelerator:
            torch.get_device_module(self.name).empty_cache()

    def repeat_bits(self) -> None:
        """Let torch take kernels with all 32 bits that give equal ones in equal runs, where it has some."""
        if not self.is_accelerator:
            return
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", CUBLAS_WORKSPACE)
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
        # torch would also fill all memory that it takes, and its own function imports its compiler (72 MB).
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        torch._C._set_deterministic_algorithms(True, warn_only=True)


PROCESSOR = TrainingDevice()


@contextlib.contextmanager
def processors_masks(*modules: "nn.Module") -> Iterator[None]:
    """Let layers of dropout take the masks that the processor draws, so that updates are the same."""
    parts = (part for module in modules for part in module.modules())
    layers = dict.fromkeys(part for part in parts if type(part) is torch.nn.Dropout)
    for layer in layers:
        layer.forward = partial(_drop, layer)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def _drop(layer: "nn.Dropout", values: "Tensor") -> "Tensor":
    if not layer.training:
        return values
    return values * torch.nn.functional.dropout(torch.ones(values.shape), layer.p).to(values.device)


def _free_of_board(board: Path) -> int | None:
    return memory(board).free


def _facts_of_cuda() -> tuple[str, int, bool]:
    card = torch.cuda.get_device_properties(0)
    return card.name, card.total_memory, bool(card.is_integrated)


def _free_of_cuda(board: Path) -> int | None:
    """Free memory of the card, or of the board whose memory it shares, and what torch keeps for reuse."""
    kept = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    _, _, shares = _facts_of_cuda()
    free = memory(board).free if shares else torch.cuda.mem_get_info()[0]
    return None if free is None else free + kept


def _free_of_mps(board: Path) -> int:
    return int(torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory())


def _facts_of_mps() -> tuple[str, int, bool]:
    return platform.processor(), int(torch.mps.recommended_max_memory()), True


FACTS: Mapping[str, Callable[[], tuple[str, int, bool]]] = {"cuda": _facts_of_cuda, "mps": _facts_of_mps}
"""An accelerator's name, its bytes of memory, and whether they are the board's."""
FREE_BYTES: Mapping[str, Callable[[Path], int | None]] = {
    "cpu": _free_of_board,
    "cuda": _free_of_cuda,
    "mps": _free_of_mps,
}
"""On a board with shared memory, such as a Jetson, CUDA counts what the kernel can reclaim as taken."""


# The choice of the device, by a trial.

AUTO = "auto"
TRIAL = "edge_client.training.training_device"
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
    for kind, found, text in try_devices(wanted, root):
        if found is not None:
            log.info("torch trains on %s, %s: %s", kind, found.name, text)
            return found
        if wanted != AUTO:
            raise ConfigError(f"torch cannot train there: {text}", key=f"--device {wanted}", remedy=REMEDY)
        log.warning("torch trains on the processor: %s %s", kind, text)
    return None


def try_devices(wanted: str, root: Path = ROOT) -> Iterator[tuple[str, Accelerator | None, str]]:
    """Each accelerator that is wanted, with its speed; None, with the reason, if torch cannot train on it."""
    stated = () if wanted == PROCESSOR.name else (wanted,)
    for kind in candidates(root) if wanted == AUTO else stated:
        try:
            trial = ask(TRIAL, DeviceQuestion.model_validate({"kind": kind}), DeviceTrial, limit_s=LIMIT_S)
        except NoAnswer as reason:
            yield kind, None, str(reason)
            continue
        why = object_to(trial, is_stated=wanted != AUTO)
        yield kind, None if why else trial.found, why or f"{trial.speed_up:.1f} x the processor"


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
    device = TrainingDevice(question.kind)
    device.repeat_bits()
    (wanted, own), (found, there) = (train_block(each) for each in (PROCESSOR, device))
    if not found.isfinite().all():
        raise ValueError("its gradients are not finite")
    difference = float((found - wanted).abs().max() / wanted.abs().max())
    return DeviceTrial(found=device.describe(ROOT), difference=difference, speed_up=there / own)


def train_block(device: TrainingDevice) -> "tuple[Tensor, float]":
    """The gradients of the reference block on a device, and its steps per second there."""
    from edge_client.training.device_speed import rate, torch_block

    block, _, step = torch_block(device.name)
    per_second = rate(step, SECONDS)
    gradients = [weight.grad.flatten().cpu() for weight in block.parameters() if weight.grad is not None]
    return torch.cat(gradients), per_second


if __name__ == "__main__":
    sys.exit(answer(DeviceQuestion, try_device))
