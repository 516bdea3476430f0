"""What onnxruntime can run models on, and what runs the device's model."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from edge_client.cli.doctor.finding import Finding, ok, warning
from edge_client.cli.doctor.libraries import PATIENCE_S
from edge_client.inference.model_slots import Slots
from edge_client.inference.providers.choice import ProviderChoice
from edge_client.inference.providers.record import choice_in_use
from edge_client.inference.providers.table import ANY_PROVIDER, CPU, PROVIDERS
from edge_client.system.hardware.board import accelerator
from edge_client.system.hardware.sysfs import ROOT

NAMES = "import onnxruntime as m; print(','.join(m.get_available_providers()))"


def providers(state: Path, interpreter: str = sys.executable, root: Path = ROOT) -> Iterator[Finding]:
    """A finding about onnxruntime's providers, and one about what a trial has chosen for the model."""
    available = _available(interpreter)
    if available is None:
        return
    rows = ANY_PROVIDER.accelerators(available)
    if accelerator(root) == "cuda" and PROVIDERS["cuda"] not in rows:
        remedy = f"install {PROVIDERS['cuda'].package} in place of onnxruntime"
        yield warning("providers", "models run on the CPU, though there is an NVIDIA device", remedy)
    else:
        yield ok("providers", ", ".join(row.name for row in (*rows, CPU)))
    choice = choice_of(state)
    if choice is not None:
        yield ok("model", f"runs on {choice.provider}: {choice.why}")


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
