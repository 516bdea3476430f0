"""Where a result comes from: command line, commit, machine, versions, date."""

import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from edge_client.system.hardware.processor import usable_cores
from edge_client.system.libraries import releases
from schemas.base import Frozen

PACKAGES = ("torch", "torchvision", "numpy", "edge-federation")


class Provenance(Frozen):
    """Where a result comes from; `commit` is None outside a git checkout, and ends in + after changes."""

    command: str
    date: str
    commit: str | None
    cpu: str
    cores: int
    gpu: str | None
    system: str
    python: str
    versions: dict[str, str]


def provenance(command: str) -> Provenance:
    return Provenance(
        command=command,
        date=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        commit=_commit(),
        cpu=_cpu(),
        cores=usable_cores(),
        gpu=_gpu(),
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        versions=releases(PACKAGES),
    )


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    models = (line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model")))
    return next(models, platform.processor() or "unknown")


def _gpu() -> str | None:
    import torch

    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else None


def _commit() -> str | None:
    here = Path(__file__).parent
    commit = _git(here, "rev-parse", "HEAD")
    if not commit:
        return None
    return commit[:12] + ("+" if _git(here, "status", "--porcelain", "--untracked-files=no") else "")


def _git(directory: Path, *words: str) -> str:
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", "-C", str(directory), *words],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
