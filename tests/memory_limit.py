"""Limits the memory of a process with a control group, as systemd's `MemoryMax` does (Linux, as root)."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path


class NoGroup(RuntimeError):
    """No control group can be made here, with the reason."""


@dataclass(frozen=True)
class Files:
    """The files of a version of control groups: the limit, the peak, how often the limit was reached."""

    mount: Path
    limit: str
    peak: str
    reached: str


VERSIONS = (
    Files(Path("/sys/fs/cgroup"), "memory.max", "memory.peak", "memory.events"),
    Files(
        Path("/sys/fs/cgroup/memory"),
        "memory.limit_in_bytes",
        "memory.max_usage_in_bytes",
        "memory.oom_control",
    ),
)


@dataclass(frozen=True)
class LimitedGroup:
    """A control group with a limit of memory; `peak` includes files that were read and can be dropped."""

    folder: Path
    files: Files

    def command(self, words: Sequence[str]) -> list[str]:
        """The command that starts in the group."""
        return ["sh", "-c", f'echo $$ > "{self.folder}/cgroup.procs" && exec "$@"', "sh", *words]

    @property
    def peak(self) -> int:
        """The most bytes that the group has used."""
        return int((self.folder / self.files.peak).read_text())

    @property
    def killed(self) -> int:
        """Number of processes that the kernel has killed for the limit."""
        lines = (line.split() for line in (self.folder / self.files.reached).read_text().splitlines())
        return int(dict(lines)["oom_kill"])


@contextlib.contextmanager
def limited_group(name: str, limit: int) -> Iterator[LimitedGroup]:
    """A group of `limit` bytes, without swap, removed after its processes have ended; raises `NoGroup`."""
    group = _made(name)
    try:
        (group.folder / group.files.limit).write_text(str(limit))
        # Only where swap is accounted for.
        with contextlib.suppress(OSError):
            (group.folder / "memory.swap.max").write_text("0")
        yield group
    finally:
        with contextlib.suppress(OSError):
            group.folder.rmdir()


def _made(name: str) -> LimitedGroup:
    refused = []
    for files in VERSIONS:
        folder = files.mount / name
        if not (files.mount / "cgroup.procs").exists():
            continue
        try:
            folder.mkdir()
            if (folder / files.limit).exists() and (folder / files.peak).exists():
                return LimitedGroup(folder, files)
            folder.rmdir()
            refused.append(f"{files.mount} does not limit memory")
        except OSError as error:
            refused.append(f"{error.strerror}: {folder}")
    raise NoGroup("no control group for memory: " + ("; ".join(refused) or "none is mounted"))
