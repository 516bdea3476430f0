"""Whether the libraries can be imported and compute, each in a process of its own.

A wheel may contain instructions that a board's processor lacks; the system then kills the process, and Python
cannot report it. Known cases: torch on Armv8.0 in pytorch issues 132032 (2.4.0), 146792 (2.6.0) and 176993
(2.10.0, fixed in 2.11); onnxruntime in issue 23957 (1.21.0, fixed in 1.22); numpy on Jetson boards in issue
18131.
"""

import platform
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping

from edge_client.cli.doctor.finding import Finding, failure, ok, warning
from edge_client.system.child_process import last_line, signal_name
from edge_client.training import choice
from schemas.errors import ConfigError
from schemas.values import TrainerName

PATIENCE_S = 180.0
"""Time limit in seconds. A Raspberry Pi Zero with a slow card needs a minute for the first import of torch.
"""

TRIALS: Mapping[str, str] = {  # A small computation per library, which then prints its version
    "numpy": "import numpy as m; a = m.ones((8, 8), m.float32); assert (a @ a)[0, 0] == 8",
    "onnxruntime": "import onnxruntime as m; m.get_available_providers()",
    "onnx": "import onnx as m; m.helper.make_node('Relu', ['a'], ['b'])",
    "torch": (
        "import torch as m; c = m.nn.Conv2d(4, 4, 3); "
        "c(m.ones(2, 4, 8, 8)).square().sum().backward(); assert c.weight.grad is not None"
    ),
}
NEEDED = frozenset({"numpy", "onnxruntime"})  # The libraries without which a board cannot run inference

KNOWN: Mapping[tuple[str, str], str] = {  # Remedies by library and architecture
    ("torch", "aarch64"): (
        "on Armv8.0 (Raspberry Pi Zero 2, 3 and 4, Jetson Nano) torch 2.4.0, 2.6.0 and 2.10.0 are known to"
        " crash: pip install 'torch>=2.11', or 'torch==2.5.1'"
    ),
    ("onnxruntime", "aarch64"): (
        "on Armv8.0 (Raspberry Pi Zero 2, 3 and 4, Jetson Nano) onnxruntime 1.21.0 is known to crash:"
        " pip install 'onnxruntime>=1.22', or 'onnxruntime==1.20.1'"
    ),
    ("numpy", "aarch64"): (
        "on Jetson boards OpenBLAS may take the processor for another one: set OPENBLAS_CORETYPE=ARMV8 in"
        " the environment of this device's service"
    ),
}
THIRTY_TWO_BITS = ("armv6", "armv7", "armhf", "i386", "i686")


def libraries() -> Iterator[Finding]:
    """One finding per library, of this interpreter and machine."""
    for name in TRIALS:
        yield library(name, sys.executable, platform.machine())


def library(name: str, interpreter: str, machine: str) -> Finding:
    """Import the library and let it compute something small."""
    check = f"import {name}"
    code = f"{TRIALS[name]}; print(m.__version__)"
    try:
        ended = subprocess.run(
            [interpreter, "-c", code], capture_output=True, text=True, errors="replace", timeout=PATIENCE_S
        )
    except subprocess.TimeoutExpired:
        return failure(
            check, f"not done after {PATIENCE_S:.0f} s", "look at the card and at memory: dmesg, free -m"
        )
    except OSError as error:
        return failure(check, f"{interpreter} cannot be run: {error}", "install Python 3.11 or newer")
    if ended.returncode == 0:
        return ok(check, (ended.stdout.split() or ["?"])[-1])
    if ended.returncode < 0:
        return _explain_signal(check, name, -ended.returncode, machine)
    return _explain_import_error(check, name, ended.stderr, machine)


def _explain_signal(check: str, name: str, number: int, machine: str) -> Finding:
    if number == signal.SIGILL:
        detail = f"illegal instruction: {name} was built for another processor than this {machine}"
        general = f"install an earlier {name}, or one that was built for this processor"
        return failure(check, detail, KNOWN.get((name, machine), general))
    if number == signal.SIGKILL:
        return failure(
            check, "killed, most likely for memory", "close other programs, or let the board only infer"
        )
    remedy = f"pip install --force-reinstall --no-cache-dir {name}: is it whole?"
    return failure(check, f"crashed with {signal_name(number)}", remedy)


def _explain_import_error(check: str, name: str, errors: str, machine: str) -> Finding:
    """The finding for an exception of Python, from the last line of its output."""
    said = last_line(errors)[:200] or "no reason was given"
    if f"No module named '{name}'" not in said:
        return failure(check, said, f"pip install --force-reinstall --no-cache-dir {name}")
    if machine.startswith(THIRTY_TWO_BITS):
        remedy = f"there are no usual wheels of {name} for {machine}: install a 64-bit operating system"
    elif name in NEEDED:
        remedy = "pip install edge-federation"
    else:
        remedy = "to train with torch: pip install 'edge-federation[client]'; onnxruntime trains without it"
    make = failure if name in NEEDED else warning
    return make(check, "not installed", remedy)


def trainers(
    wanted: str, free_memory: int | None, needed: Mapping[TrainerName, int] = choice.PROCESS_BYTES
) -> Iterator[Finding]:
    """A finding per trainer, then the choice of `--trainer` with that much free memory."""
    here = choice.installed_trainers()
    yield from (_one(name, size, needed=not here) for name, size in needed.items())
    yield _choice(wanted, free_memory, here, needed)


def first_trainer(
    wanted: str, free_memory: int | None, needed: Mapping[TrainerName, int] = choice.PROCESS_BYTES
) -> TrainerName:
    """The trainer that the device takes; onnxruntime, which takes least, if none can train."""
    try:
        return choice.choose_trainers(wanted, free_memory=free_memory, needed=needed)[0]
    except ConfigError:
        return "onnx"


def _one(name: TrainerName, size: int, *, needed: bool) -> Finding:
    """A trainer that is not installed is a problem if there is no other, and an outdated one always is."""
    check, (reason, _, remedy) = f"trainer {name}", choice.missing(name).partition(": ")
    if not reason:
        return ok(check, f"installed; its process takes about {_megabytes(size)} before training")
    if needed or (name == "onnx" and choice.outdated_runtime()):
        return warning(check, reason, remedy)
    return ok(check, f"{reason}, and another trainer is")


def _choice(
    wanted: str, free_memory: int | None, here: tuple[TrainerName, ...], needed: Mapping[TrainerName, int]
) -> Finding:
    check = f"--trainer {wanted}"
    if wanted == "auto" and not here:
        return warning(check, "nothing can train here", "install a trainer, or let the board only infer")
    try:
        first, *others = choice.choose_trainers(wanted, free_memory=free_memory, needed=needed)
    except ConfigError as error:
        reason, _, remedy = str(error).removeprefix(f"{check}: ").partition(": ")
        return failure(check, reason, remedy)
    if wanted != "auto":
        return ok(check, f"takes {first}, as asked")
    further = f"; {others[0]} where the server finds that {first} does not fit" if others else ""
    return ok(check, f"takes {first}: {_reason(first, free_memory, here, needed)}{further}")


def _reason(
    first: TrainerName,
    free_memory: int | None,
    here: tuple[TrainerName, ...],
    needed: Mapping[TrainerName, int],
) -> str:
    if len(here) == 1:
        return "no other is usable"
    wanted = f"torch should find {_megabytes(choice.MARGIN * needed['torch'])}"
    if free_memory is None:
        return f"{wanted}, and free memory is unknown"
    verb = "and" if choice.torch_fits(free_memory, needed) else "but only"
    return f"{wanted}, {verb} {_megabytes(free_memory)} are free"


def _megabytes(count: float) -> str:
    return f"{count / 1e6:.0f} MB"
