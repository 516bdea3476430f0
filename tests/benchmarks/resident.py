"""What processes take of memory, seen from outside and from within (Linux)."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path


def family(root: int) -> dict[int, int]:
    """The process and its descendants, each with how far down it is."""
    parents = {int(path.name): parent(path) for path in Path("/proc").iterdir() if path.name.isdigit()}
    depths, found = {root: 0}, [root]
    for pid in found:
        children = [child for child, its_parent in parents.items() if its_parent == pid]
        depths.update((child, depths[pid] + 1) for child in children)
        found += children
    return depths


def parent(process: Path) -> int | None:
    """The parent of a process; None for one that is gone."""
    try:
        # The name, in brackets, may itself hold blanks and brackets.
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def pss(pid: int) -> int | None:
    """The process's proportional set size in bytes; None for one that is gone."""
    return _kilobytes(Path(f"/proc/{pid}/smaps_rollup"), "Pss")


def rss(pid: int | str = "self") -> int | None:
    """The process's resident set size in bytes; None for one that is gone."""
    return _kilobytes(Path(f"/proc/{pid}/status"), "VmRSS")


def peak_rss(pid: int | str = "self") -> int | None:
    """The largest that the resident set ever was, or was since `forget_peak`; None for one that is gone."""
    return _kilobytes(Path(f"/proc/{pid}/status"), "VmHWM")


def forget_peak() -> None:
    """Begin anew with this process's `peak_rss`."""
    Path("/proc/self/clear_refs").write_text("5")


def watch(process: subprocess.Popen[bytes], *, every_s: float = 0.1) -> dict[str, int]:
    """Peaks of one process in bytes, `rss` as the kernel keeps it and `pss` as it is met, until it ends."""
    peaks = {"rss": 0, "pss": 0}
    while process.poll() is None:
        for name, read in (("rss", peak_rss), ("pss", pss)):
            peaks[name] = max(peaks[name], read(process.pid) or 0)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(every_s)
    return peaks


def _kilobytes(path: Path, name: str) -> int | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), None)
