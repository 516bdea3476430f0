"""Whether the board has enough memory and disk space, a correct clock, and what runs models."""

import ctypes
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from edge_client.cli.doctor.finding import Finding, failure, ok, warning
from edge_client.cli.doctor.libraries import PATIENCE_S
from edge_client.inference.model_slots import Slots
from edge_client.inference.providers.choice import ProviderChoice
from edge_client.inference.providers.record import choice_in_use
from edge_client.inference.providers.table import ANY_PROVIDER, CPU, PROVIDERS, ProviderSettings
from edge_client.system.hardware import profile, sysfs
from edge_client.system.hardware.memory import Memory, storage
from edge_client.training import training_device
from schemas.errors import ConfigError
from schemas.values import TrainerName

NAMES = "import onnxruntime as m; print(','.join(m.get_available_providers()))"


def providers(
    state: Path,
    interpreter: str = sys.executable,
    root: Path = sysfs.ROOT,
    stated: ProviderSettings = ANY_PROVIDER,
) -> Iterator[Finding]:
    """Findings about onnxruntime's providers and those that are stated, and about what a trial has chosen."""
    available = _available(interpreter)
    if available is None:
        return
    rows = ANY_PROVIDER.accelerators(available)
    try:
        stated.accelerators(available)
    except ConfigError as error:
        yield failure("providers", error.reason, error.remedy)
        return
    if profile.accelerator(root) == "cuda" and PROVIDERS["cuda"] not in rows:
        remedy = f"install {PROVIDERS['cuda'].package} in place of onnxruntime"
        yield warning("providers", "models run on the CPU, though there is an NVIDIA device", remedy)
    else:
        yield ok("providers", ", ".join(row.name for row in (*rows, CPU)))
    choice = choice_of(state)
    if choice is not None:
        yield ok("model", f"runs on {choice.provider}: {choice.why}")


def training_devices(wanted: str, root: Path = sysfs.ROOT) -> Iterator[Finding]:
    """A finding for each accelerator that torch might train on, or is to; none on a board without."""
    check = f"--device {wanted}"
    for kind, found, text in training_device.try_devices(wanted, root):
        if found is not None:
            yield ok(check, f"torch trains on {kind}, {found.name}: {text}")
        elif wanted == training_device.AUTO:
            yield warning(check, f"torch trains on the processor: {kind} {text}", training_device.REMEDY)
        else:
            yield failure(check, f"torch cannot train there: {text}", training_device.REMEDY)


def choice_of(state: Path) -> ProviderChoice | None:
    """The provider that runs the device's model; None where none was chosen."""
    current = Slots(state / "serving").current()
    return None if current is None else choice_in_use(current.path, current.model.digest)


def _available(interpreter: str) -> list[str] | None:
    """onnxruntime's names; None where it cannot be imported, which the check of libraries reports."""
    try:
        ended = subprocess.run([interpreter, "-c", NAMES], capture_output=True, text=True, timeout=PATIENCE_S)
    except (subprocess.TimeoutExpired, OSError):
        return None
    lines = ended.stdout.split()
    return lines[-1].split(",") if ended.returncode == 0 and lines else None


FULL, NEARLY_FULL = 100e6, 1e9
"""Bytes of free disk: room for a large model and its update, twice; and a comfortable amount."""
TO_INFER = 90e6  # Bytes of memory of a process that serves a small model
TO_TRAIN: Mapping[TrainerName, float] = {"torch": 300e6, "onnx": 120e6}
"""Bytes of memory of a process that trains a small network, by trainer."""
UNSYNCHRONISED = 0x40  # Linux, include/uapi/linux/timex.h: STA_UNSYNC


def disk(state: Path) -> Finding:
    """Free space in the state folder, and whether it is writable."""
    room = storage(state)
    if room is None:
        return failure("disk", f"{state} is on no disk that can be read", "name another --state-dir")
    said = f"{room.free / 1e9:.1f} of {room.total / 1e9:.1f} GB are free at {state}"
    try:
        state.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=state) as file:
            file.write(b"0")
    except OSError as error:
        remedy = "name another --state-dir, or give it to this user: chown"
        return failure("disk", f"{state} cannot be written: {error.strerror or error}", remedy)
    if room.free < FULL:
        return failure("disk", said, "make room: models and updates would not fit")
    if room.free < NEARLY_FULL:
        return warning("disk", said, "make room, or take a larger card")
    return ok("disk", said)


def room(
    memory: Memory, trainer: TrainerName = "torch", needed: Mapping[TrainerName, float] = TO_TRAIN
) -> Finding:
    """Memory for a process that infers, and for one that trains."""
    if memory.free is None:
        return warning("memory", "this system does not say how much is free", "on Linux, mount /proc")
    said, remedy = f"{memory.free / 1e6:.0f} MB are free for a process", "close other programs"
    if memory.limit is not None:
        slow = " (memory.high: above it everything is a hundred times slower)" if memory.slows else ""
        said += f", the limit is {memory.limit / 1e6:.0f} MB{slow}"
        remedy = f"raise its limit (systemd: {'MemoryHigh' if memory.slows else 'MemoryMax'})"
    if memory.free < TO_INFER:
        return failure("memory", said, remedy)
    if memory.free < needed[trainer]:
        return warning("memory", said, f"enough to infer, hardly to train: {remedy}")
    return ok("memory", said)


def clock(synchronised: Callable[[], bool | None]) -> Finding:
    """Whether the kernel reports a synchronised clock.

    MQTT transmits no time for a comparison; the TLS check compares the dates of certificates.
    """
    kept = synchronised()
    if kept is None:
        return warning(
            "clock", "this system does not say whether it is right", "compare it with a watch: date"
        )
    if not kept:
        remedy = "timedatectl set-ntp true; a board without a battery for its clock needs it at every start"
        return warning("clock", "nothing keeps it right", remedy)
    return ok("clock", "kept right by NTP")


def kernel_synchronised() -> bool | None:
    """The kernel's synchronisation status; None if it reports none (not Linux)."""
    # `struct timex` begins with modes, four longs and the status; modes 0 only asks.
    space = (ctypes.c_long * 64)()
    try:
        libc = ctypes.CDLL(None)
        if libc.adjtimex(ctypes.byref(space)) < 0:
            return None
    except (AttributeError, OSError):
        return None
    words = ctypes.cast(space, ctypes.POINTER(ctypes.c_int))
    # modes (padded to a long), offset, freq, maxerror, esterror, then the status as an int.
    status = words[5 * ctypes.sizeof(ctypes.c_long) // ctypes.sizeof(ctypes.c_int)]
    return not status & UNSYNCHRONISED
