"""Memory: of the machine, of this process, and what is left."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from edge_client.system.hardware.sysfs import ROOT, number, text, whole


@dataclass(frozen=True)
class Storage:
    """In bytes; `free` is what this user may use."""

    free: int
    total: int


def storage(folder: Path) -> Storage | None:
    """The disk of a folder that exists or will be created."""
    for place in (folder, *folder.absolute().parents):
        try:
            usage = shutil.disk_usage(place)
        except OSError:
            continue
        return Storage(usage.free, usage.total)
    return None


ADDRESS_SPACE = "Max address space"


@dataclass(frozen=True)
class Memory:
    """In bytes; None if unknown.

    `limit` is the lowest limit of a control group or `ulimit -v`, if any; above one that `slows` the process
    is slowed down (`memory.high`). `free` is what it can still allocate before it is slowed down, refused or
    killed.
    """

    physical: int | None
    available: int | None
    limit: int | None
    free: int | None
    slows: bool = False

    @property
    def usable(self) -> int | None:
        """What this process can use at most: the machine's memory, or a lower limit."""
        known = [size for size in (self.physical, self.limit) if size is not None]
        return min(known, default=None)


def memory(root: Path = ROOT) -> Memory:
    machine = _table(root / "proc/meminfo")
    groups = bounded_groups(root)
    limits, free = [(group.limit, group.file == HIGH) for group in groups], [group.free for group in groups]
    space = _address_space(root)
    if space is not None:
        limits.append((space, False))
        free.append(max(0, space - _table(root / "proc/self/status").get("VmSize", 0)))
    available = machine.get("MemAvailable")
    if available is not None:
        free.append(available)
    limit, slows = min(limits, default=(None, False))
    return Memory(machine.get("MemTotal"), available, limit, min(free, default=None), slows)


def resident(root: Path = ROOT) -> int | None:
    """The resident bytes of this process."""
    return _table(root / "proc/self/status").get("VmRSS")


def _table(path: Path) -> dict[str, int]:
    """The sizes of a file of lines like `MemTotal:  948304 kB`, in bytes."""
    lines = (line.split() for line in text(path).splitlines())
    sizes = {line[0].rstrip(":"): whole(line[1]) for line in lines if len(line) == 3 and line[2] == "kB"}
    return {key: size * 1024 for key, size in sizes.items() if size is not None and size >= 0}


def _address_space(root: Path) -> int | None:
    """The soft limit of the address space, if there is one."""
    for line in text(root / "proc/self/limits").splitlines():
        if line.startswith(ADDRESS_SPACE):
            return whole((line.removeprefix(ADDRESS_SPACE).split() or [""])[0])
    return None


# The control groups that limit this process's memory: its own and all above it, of versions 1 and 2.
#
# systemd's `MemoryMax` is such a limit. So is `MemoryHigh`: a process above it is not killed, but slowed down
# a hundredfold. A group's folder is the path in `/proc/self/cgroup` below the mount point of the hierarchy.
# In a container that path may not exist; then the mount point itself is the process's group. Linux,
# Documentation/admin-guide/cgroup-v2 and cgroup-v1/memory.

NO_LIMIT = 2**60  # version 1 writes the largest number of pages if there is no limit


@dataclass(frozen=True)
class Version:
    """The folder of a version of control groups, below `root`, and the names of its files."""

    mount: str
    limits: tuple[str, ...]
    usage: str
    files: tuple[str, str]  # pages in `memory.stat`: those read once, and those read again or in use


HIGH = "memory.high"
V2 = Version("sys/fs/cgroup", ("memory.max", HIGH), "memory.current", ("inactive_file", "active_file"))
V1 = Version(
    "sys/fs/cgroup/memory",
    ("memory.limit_in_bytes",),
    "memory.usage_in_bytes",
    ("total_inactive_file", "total_active_file"),
)


@dataclass(frozen=True)
class Group:
    """A group with a limit, in bytes, that a file states; `used` excludes what the kernel can reclaim."""

    folder: Path
    file: str
    limit: int
    used: int

    @property
    def free(self) -> int:
        """Bytes that can still be allocated in the group."""
        return max(0, self.limit - self.used)


def bounded_groups(root: Path = ROOT) -> list[Group]:
    """The limits of groups that contain this process, its own first."""
    found = []
    for version, path in _paths(root):
        for folder in _folders(root / version.mount, path):
            for file in version.limits:
                limit = number(folder / file)
                if limit is not None and 0 <= limit < NO_LIMIT:
                    found.append(Group(folder, file, limit, _read_used_bytes(folder, version)))
    return found


def _paths(root: Path) -> list[tuple[Version, str]]:
    """The process's path in each hierarchy that controls memory; at least the root of version 2."""
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
    """The group's folder and all above it, up to the mount point; only the mount point for a foreign path."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in path or not mount.joinpath(*parts).is_dir():
        parts = []
    return [mount.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]


def _read_used_bytes(folder: Path, version: Version) -> int:
    """The used memory without file pages, which the kernel can reclaim."""
    lines = (line.split() for line in text(folder / "memory.stat").splitlines())
    pages = sum(whole(line[1]) or 0 for line in lines if len(line) == 2 and line[0] in version.files)
    return max(0, (number(folder / version.usage) or 0) - pages)
