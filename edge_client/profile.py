"""What this machine is, as it says so in its birth message; Linux's /proc and cgroups where there are any."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

from schemas.values import CapabilityProfile

SOFTWARE = ("edge-federation", "torch", "onnxruntime", "numpy")
CGROUP_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def profile(*, tier: int | None = None) -> CapabilityProfile:
    """Describe this machine; what cannot be found out is left empty."""
    return CapabilityProfile(
        machine=f"{platform.system()} {platform.machine()}",
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_bytes=_memory_bytes(),
        accelerator="cuda" if Path("/dev/nvidia0").exists() or Path("/dev/nvhost-gpu").exists() else None,
        tier=tier,
        software={"python": platform.python_version(), **_versions()},
    )


def _versions() -> dict[str, str]:
    found = {}
    for name in SOFTWARE:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    """The board's name on an Arm board, the processor's elsewhere."""
    names = {}
    for line in _read(Path("/proc/cpuinfo")).splitlines():
        key, colon, value = line.partition(":")
        if colon:
            names[key.strip()] = value.strip()
    return names.get("Model") or names.get("model name") or platform.processor()


def _memory_bytes() -> int:
    """Physical memory, or the control group's limit where that is lower; 0 if neither is known."""
    limits = [int(text) for path in CGROUP_LIMITS if (text := _read(path).strip()).isdigit()]
    for line in _read(Path("/proc/meminfo")).splitlines():
        if line.startswith("MemTotal:"):
            limits.append(int(line.split()[1]) * 1024)
    return min(limits, default=0)


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
