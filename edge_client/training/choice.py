"""Which trainer a device uses: torch, or onnxruntime with graphs that the server draws."""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from edge_client.system.libraries import has_file, is_installed, release
from edge_client.system.process_memory import resident_bytes
from schemas.errors import ConfigError
from schemas.values import AcceleratorKind, MeasuredSpeed, TrainerName

if TYPE_CHECKING:
    from edge_client.training.step_graphs.running.trainer import StepPlaces
    from edge_client.training.trainer import Trainer

Wanted = Literal["auto", "torch", "onnx"]
WANTED: tuple[str, ...] = get_args(Wanted)

PROCESS_BYTES: Mapping[TrainerName, int] = {"torch": 330_000_000, "onnx": 90_000_000}
"""Memory of a process with that trainer that is ready to train, without a model; the best trainer first.

Until this device has imported its torch, and of a torch without CUDA.
"""
READY_BYTES = 110_000_000  # besides the import: Python, the client, and what a first step leaves
CUDA_BYTES = 577_000_000 + READY_BYTES  # with CUDA's libraries, as a plain `pip install torch` on x86 has
MARGIN = 1.5  # free memory that torch should find, as a multiple of its own
MIN_RUNTIME = (1, 17)  # the first onnxruntime that reads the server's graphs


def missing(name: TrainerName) -> str:
    """Why this trainer is not there, with the remedy; empty if it is."""
    if name == "torch":
        return (
            "" if is_installed("torch") else "torch is not installed: pip install 'edge-federation[client]'"
        )
    if release("onnxruntime") is None:
        return "onnxruntime is not installed: pip install 'edge-federation[onnx-client]'"
    return outdated_runtime()


def outdated_runtime() -> str:
    """Why the installed onnxruntime cannot train, with the remedy; empty if it can, or is not installed."""
    installed = release("onnxruntime") or ""
    numbers = tuple(int(part) for part in installed.split(".")[:2] if part.isdigit())
    if not installed or numbers >= MIN_RUNTIME:
        return ""
    least = ".".join(map(str, MIN_RUNTIME))
    return f"onnxruntime {installed} is too old for step graphs: pip install 'onnxruntime>={least}'"


def installed_trainers() -> tuple[TrainerName, ...]:
    """The trainers whose libraries are there, the best first."""
    return tuple(name for name in PROCESS_BYTES if not missing(name))


def process_bytes(measured: Iterable[MeasuredSpeed] = ()) -> dict[TrainerName, int]:
    """`PROCESS_BYTES` on this device, as far as it has `measured` them."""
    torch = CUDA_BYTES if has_file("torch", "lib/libtorch_cuda.so") else PROCESS_BYTES["torch"]
    own = {speed.trainer: speed.resident_bytes for speed in measured if speed.resident_bytes is not None}
    return {**PROCESS_BYTES, "torch": torch, **own}


def choose_trainers(
    wanted: str, *, free_memory: int | None, needed: Mapping[TrainerName, int] = PROCESS_BYTES
) -> tuple[TrainerName, ...]:
    """The trainers that a device announces, the best first.

    `auto` is torch where it is installed and what it needs fits into the free memory, and onnxruntime
    besides. Raises `ConfigError` if the wanted trainer is not there.
    """
    if wanted == "auto":
        here = installed_trainers()
        fits = torch_fits(free_memory, needed) or here == ("torch",)
        chosen = tuple(name for name in here if name != "torch" or fits)
        if not chosen:
            raise ConfigError(
                f"--trainer auto: nothing can train here: {missing('torch')}; {missing('onnx')}"
            )
        return chosen
    for name in get_args(TrainerName):
        if name == wanted:
            if why := missing(name):
                raise ConfigError(f"--trainer {wanted}: {why}")
            return (name,)
    raise ConfigError(f"--trainer {wanted!r}: expected {', '.join(WANTED)}")


def torch_fits(free_memory: int | None, needed: Mapping[TrainerName, int]) -> bool:
    """Whether a process with torch fits into so much free memory, with room for a network."""
    return free_memory is None or free_memory >= MARGIN * needed["torch"]


def make_trainer(
    name: TrainerName | None = None,
    *,
    threads: int | None = None,
    accelerator: AcceleratorKind | None = None,
    places: "StepPlaces | None" = None,
) -> "Trainer":
    """The trainer of that name, by default torch's where it is installed; imports its libraries.

    torch trains on the `accelerator`, if there is one, and onnxruntime runs steps where `places` says.
    """
    if name is None:
        name = "onnx" if missing("torch") else "torch"
    if name == "onnx":
        from edge_client.training.step_graphs.running.trainer import OnnxTrainer

        return OnnxTrainer(threads=threads) if places is None else OnnxTrainer(threads=threads, places=places)
    from edge_client.training.torch_trainer import TorchTrainer
    from edge_client.training.training_device import PROCESSOR, TrainingDevice

    return TorchTrainer(threads=threads, device=TrainingDevice(accelerator) if accelerator else PROCESSOR)


def make_measured_trainer(
    name: TrainerName | None = None,
    *,
    threads: int | None = None,
    accelerator: AcceleratorKind | None = None,
    places: "StepPlaces | None" = None,
    state: Path,
) -> "Trainer":
    """The trainer; the state folder learns what importing torch takes, for the device's next start."""
    before = None if "torch" in sys.modules else resident_bytes()
    trainer = make_trainer(name, threads=threads, accelerator=accelerator, places=places)
    if before is not None and "torch" in sys.modules:
        from edge_client.system.hardware.profile import note_process

        taken = READY_BYTES + max(0, resident_bytes() - before)
        noted = MeasuredSpeed(trainer="torch", device=accelerator or "cpu", resident_bytes=taken)
        note_process(state, noted)
    return trainer
