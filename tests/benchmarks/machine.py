"""The machine that a benchmark ran on."""

import os
import platform
from pathlib import Path


def describe() -> dict[str, str | int | float]:
    """Processor, cores, memory in GB, system, Python, and the load just before."""
    names = {
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    }
    return {
        "processor": ", ".join(sorted(names)) or platform.machine(),
        "cores": os.cpu_count() or 1,
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }
