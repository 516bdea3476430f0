"""Memory: of the machine, of this process, and what is left."""

from dataclasses import dataclass
from pathlib import Path

from edge_client.system.hardware.cgroups import HIGH, bounded_groups
from edge_client.system.hardware.sysfs import ROOT, text, whole

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
    """The memory of this machine and of this process."""
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
