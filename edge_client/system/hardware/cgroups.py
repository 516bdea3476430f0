"""The control groups that bound this process's memory: its own and all above it, of version 1 and 2.

systemd's `MemoryMax` is such a limit. A group is found by the path that `/proc/self/cgroup` states below the
place where the hierarchy is mounted; a process that sees only a part of the hierarchy (a container) has paths
that lead nowhere here, and then what is mounted is its own group. Linux, Documentation/admin-guide/cgroup-v2
and cgroup-v1/memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edge_client.system.hardware.sysfs import ROOT, number, text, whole

NO_LIMIT = 2**60
"""Version 1 writes the largest number of pages where there is no limit."""


@dataclass(frozen=True)
class Version:
    """Where a version of control groups keeps its files, below `root`, and what they are called."""

    mount: str
    limit: str
    usage: str
    idle: str


V2 = Version("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file")
V1 = Version("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


@dataclass(frozen=True)
class Group:
    """A group with a limit, in bytes. `used` is without what the kernel would give back before it kills."""

    folder: Path
    limit: int
    used: int

    @property
    def free(self) -> int:
        """What may still be taken in it."""
        return max(0, self.limit - self.used)


def bounded_groups(root: Path = ROOT) -> list[Group]:
    """The groups with a limit that this process is in, its own first."""
    found = []
    for version, path in _paths(root):
        for folder in _folders(root / version.mount, path):
            limit = number(folder / version.limit)
            if limit is not None and 0 <= limit < NO_LIMIT:
                found.append(Group(folder, limit, _used(folder, version)))
    return found


def own_group(root: Path = ROOT) -> Path | None:
    """The folder of this process's group of version 2, where its memory pressure is told."""
    paths = [path for version, path in _paths(root) if version is V2]
    return next(iter(_folders(root / V2.mount, paths[0])), None) if paths else None


def _paths(root: Path) -> list[tuple[Version, str]]:
    """The process's path in each hierarchy that governs memory; at least the mounted root of version 2."""
    found = []
    for line in text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if colon and "memory" in controllers.split(","):
            found.append((V1, path))
        elif colon and not controllers:
            found.append((V2, path))
    return found or [(V2, "/"), (V1, "/")]


def _folders(mount: Path, path: str) -> list[Path]:
    """The group's folder and all above it, up to the mount; of a path from elsewhere the mount alone."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in path or not mount.joinpath(*parts).is_dir():
        parts = []
    return [mount.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]


def _used(folder: Path, version: Version) -> int:
    """What is in use, the pages of files that nobody has touched for long apart."""
    lines = (line.split() for line in text(folder / "memory.stat").splitlines())
    idle = next((whole(line[1]) for line in lines if len(line) == 2 and line[0] == version.idle), None)
    return max(0, (number(folder / version.usage) or 0) - (idle or 0))
