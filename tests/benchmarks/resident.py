"""Memory of processes, measured from outside and from inside (Linux)."""

import contextlib
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path


def family(root: int) -> dict[int, int]:
    """The process and its descendants, each with its depth."""
    parents = {int(path.name): parent(path) for path in Path("/proc").iterdir() if path.name.isdigit()}
    depths, found = {root: 0}, [root]
    for pid in found:
        children = [child for child, its_parent in parents.items() if its_parent == pid]
        depths.update((child, depths[pid] + 1) for child in children)
        found += children
    return depths


def parent(process: Path) -> int | None:
    """The parent of a process; None if the process has ended."""
    try:
        # The name, in brackets, may contain spaces and brackets.
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def pss(pid: int) -> int | None:
    """The process's proportional set size in bytes; None if the process has ended."""
    return _kilobytes(Path(f"/proc/{pid}/smaps_rollup"), "Pss")


def rss(pid: int | str = "self") -> int | None:
    """The process's resident set size in bytes; None if the process has ended."""
    return _kilobytes(Path(f"/proc/{pid}/status"), "VmRSS")


def peak_rss(pid: int | str = "self") -> int | None:
    """The peak of the resident set, since `forget_peak` if called; None if the process has ended."""
    return _kilobytes(Path(f"/proc/{pid}/status"), "VmHWM")


def forget_peak() -> None:
    """Reset this process's `peak_rss`."""
    Path("/proc/self/clear_refs").write_text("5")


def looks(process: subprocess.Popen[bytes], *, every_s: float) -> Iterator[None]:
    """Yield immediately and then every `every_s` seconds, until the process ends."""
    while process.poll() is None:
        yield
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(every_s)


def watch(process: subprocess.Popen[bytes], *, every_s: float = 0.1) -> dict[str, int]:
    """Peaks of a process in bytes until it ends: `rss` as recorded by the kernel, `pss` as sampled."""
    peaks = {"rss": 0, "pss": 0}
    for _ in looks(process, every_s=every_s):
        for name, read in (("rss", peak_rss), ("pss", pss)):
            peaks[name] = max(peaks[name], read(process.pid) or 0)
    return peaks


def family_peaks(pid: int) -> dict[str, float]:
    """Peak MB of a process and of each of its descendants so far, by command and process id.

    This is the memory needed on a board with only this device: shared pages count in each process.
    """
    sizes = {f"{_command(member)} {member}": peak_rss(member) for member in family(pid)}
    return {name: size / 1e6 for name, size in sizes.items() if size is not None}


class Watch:
    """Samples the memory of a process and its descendants every quarter of a second until `stop`."""

    def __init__(self, pid: int) -> None:
        self._pid, self._done = pid, threading.Event()
        self.largest: dict[str, float] = {}
        self._thread = threading.Thread(target=self._look, name="memory", daemon=True)
        self._thread.start()

    def stop(self) -> dict[str, float]:
        """Stop; return the MB of each process when their sum was largest."""
        self._done.set()
        self._thread.join()
        return self.largest

    def _look(self) -> None:
        while not self._done.wait(0.25):
            now = family_peaks(self._pid)
            if sum(now.values()) > sum(self.largest.values()):
                self.largest = now


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return "?"
    names = [Path(os.fsdecode(word)).name for word in words[:3] if word]
    return next((name for name in names if not name.startswith("python") and name != "-m"), "python")


def _kilobytes(path: Path, name: str) -> int | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), None)
