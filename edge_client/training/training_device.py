"""What torch trains on: the processor, or an accelerator, with its memory and its kernels.

Modules are moved there by `TorchTrainer`; the loop, the objectives and the codecs go where the module is.
"""

import contextlib
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from edge_client.system.hardware.memory import memory
from edge_client.system.process_memory import give_back
from schemas.values import Accelerator

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


CPU = TrainingDevice()


@contextlib.contextmanager
def processors_masks(*modules: nn.Module) -> Iterator[None]:
    """Let layers of dropout take the masks that the processor draws, so that updates are the same."""
    parts = (part for module in modules for part in module.modules())
    layers = dict.fromkeys(part for part in parts if type(part) is nn.Dropout)
    for layer in layers:
        layer.forward = partial(_drop, layer)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def _drop(layer: nn.Dropout, values: Tensor) -> Tensor:
    if not layer.training:
        return values
    return values * nn.functional.dropout(torch.ones(values.shape), layer.p).to(values.device)


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
