# ruff: noqa: PTH110, PTH112, PTH113, PTH114, PTH116, PTH118, PTH120
"""Disks of the simulated machines: real files in memory, whose operations can fail, tear, or be lost.

A killed process keeps what it has written. A power cut may also undo what was not synced: bytes of files
since their last fsync, entries of a folder since the folder's last one, each down to a random point. SQLite's
own syncing is believed: a journal with `synchronous=FULL` keeps every commit, any other loses those since it
was opened.
"""

import errno
import io
import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FULL = 2
"""`PRAGMA synchronous` of a database that waits for the disk."""
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Killed(BaseException):
    """The process ends at once; no handler of the product catches this."""


@dataclass
class Undo:
    """An entry of a folder that is not synced, and how to take it back; `made` is that of a new folder."""

    folder: str
    take_back: Callable[[], None]
    made: str = ""


@dataclass
class Machine:
    """One machine's disk.

    `crash_after` disk operations the process is killed; `fail_syncs` is the number of the next fsync that
    fails (0: none). `before` are the synced bytes of files changed since, by inode; `undo` the entries that
    are not synced. They are followed only with `loses_power`.
    """

    name: str
    root: str
    loses_power: bool = False
    full: bool = False
    dead: bool = False
    crash_after: int | None = None
    fail_sync: int = 0
    before: dict[int, bytes] = field(default_factory=dict)
    undo: list[Undo] = field(default_factory=list)
    databases: list["Database"] = field(default_factory=list)
    opened: dict[str, dict[str, bytes]] = field(default_factory=dict)
    operations: int = 0

    def operate(self, *, needs_room: bool = False, tear: Callable[[], object] | None = None) -> None:
        """Count an operation: it may be the last one of the process, done half, or find no room."""
        if self.dead:
            raise Killed(self.name)
        self.operations += 1
        if self.crash_after is not None:
            self.crash_after -= 1
            if self.crash_after < 0:
                self.dead = True
                if tear is not None:
                    tear()
                raise Killed(self.name)
        if needs_room and self.full:
            raise OSError(errno.ENOSPC, "No space left on device (storm)")

    def synced(self) -> None:
        """Raise the error of a failing disk if this fsync is the one."""
        self.operate()
        if self.fail_sync:
            self.fail_sync -= 1
            if self.fail_sync == 0:
                raise OSError(errno.EIO, "Input/output error (storm)")

    def remember(self, path: str) -> None:
        """Keep the synced bytes of a file that is about to change."""
        if self.loses_power:
            with suppress(OSError):
                inode = os.stat(path).st_ino
                if inode not in self.before:
                    self.before[inode] = _content(path)

    def changed(self, path: str, take_back: Callable[[], None], *, made: str = "") -> None:
        """Note a new, moved or removed entry of a folder."""
        if self.loses_power:
            self.undo.append(Undo(os.path.dirname(path), take_back, made))

    def settled(self, path: str, inode: int) -> None:
        """A file, or a folder's entries, are synced, and with them the folders above."""
        if os.path.isdir(path):
            self.undo = [entry for entry in self.undo if entry.folder != path]
        else:
            self.before.pop(inode, None)
        self.undo = [
            entry for entry in self.undo if not entry.made or not f"{path}/".startswith(f"{entry.made}/")
        ]

    def restart(self) -> None:
        """A new process begins."""
        for database in self.databases:
            with suppress(sqlite3.Error):
                database.leave()
        self.databases.clear()
        self.dead, self.crash_after = False, None

    def lose_power(self, draw: random.Random) -> None:
        """Undo what was not synced, to random points; call it before `restart`."""
        for database in self.databases:
            with suppress(sqlite3.Error):
                database.leave()
            if not database.waits:
                _restore(self.opened[database.path])
        self.databases.clear()
        keeps = {folder: draw.random() for folder in sorted({entry.folder for entry in self.undo})}
        left = {folder: sum(e.folder == folder for e in self.undo) for folder in keeps}
        kept = {folder: round(left[folder] * share) for folder, share in keeps.items()}
        for entry in reversed(self.undo):
            if left[entry.folder] > kept[entry.folder]:
                left[entry.folder] -= 1
                with suppress(OSError):
                    entry.take_back()
        for path in sorted(_files(self.root)):
            inode = os.stat(path).st_ino
            if inode in self.before:
                _write(path, _torn(self.before[inode], _content(path), draw))
        self.before.clear()
        self.undo.clear()


def _torn(old: bytes, new: bytes, draw: random.Random) -> bytes:
    """What a disk may have of a file that was changed and not synced."""
    match draw.randrange(4):
        case 0:
            return old
        case 1:
            return new
        case 2:  # the length was written, the bytes were not
            return old[: len(new)] + bytes(max(0, len(new) - len(old)))
        case _:
            at = draw.randint(0, len(new))
            return new[:at] + old[at : len(new)]


def _content(path: str) -> bytes:
    with REAL_OPEN(path, "rb") as file:
        return bytes(file.read())


def _write(path: str, data: bytes) -> None:
    with REAL_OPEN(path, "wb") as file:
        file.write(data)


def _files(root: str) -> Iterator[str]:
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            if not os.path.islink(path) and ".sqlite" not in name:
                yield path


def _remove_tree(path: str) -> None:
    for folder, folders, names in os.walk(path, topdown=False):
        for name in names:
            REAL["unlink"](os.path.join(folder, name))
        for name in folders:
            REAL["rmdir"](os.path.join(folder, name))
    REAL["rmdir"](path)


def _restore(files: dict[str, bytes]) -> None:
    base = next(iter(files))
    for suffix in ("-wal", "-shm", "-journal"):
        with suppress(OSError):
            REAL["unlink"](base + suffix)
    for path, data in files.items():
        if data:
            _write(path, data)
        else:
            with suppress(OSError):
                REAL["unlink"](path)


REAL_OPEN = io.open
REAL: dict[str, Any] = {
    name: getattr(os, name)
    for name in (
        *("open", "close", "pwrite", "ftruncate", "fsync", "replace", "rename", "unlink", "remove"),
        *("link", "mkdir", "rmdir", "symlink"),
    )
}
REAL_CONNECT, REAL_RMTREE = sqlite3.connect, shutil.rmtree


class Torn:
    """A file open for writing, each write of which is one operation."""

    def __init__(self, file: Any, machine: Machine) -> None:
        self._file, self._machine = file, machine

    def write(self, data: Any) -> Any:
        half = data[: len(data) // 2]
        self._machine.operate(needs_room=True, tear=lambda: self._file.write(half))
        return self._file.write(data)

    def writelines(self, pieces: Any) -> None:
        for piece in pieces:
            self.write(piece)

    def __enter__(self) -> "Torn":
        return self

    def __exit__(self, *why: Any) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class Database(sqlite3.Connection):
    """A connection whose commits are operations of its machine's disk."""

    machine: Machine
    path: str

    @property
    def waits(self) -> bool:
        """Whether each commit was synced."""
        return self._synchronous == FULL

    def leave(self) -> None:
        """The process is gone: an open transaction is rolled back."""
        self.rollback()
        self.close()

    def execute(self, sql: str, *args: Any) -> Any:
        done = super().execute(sql, *args)
        if sql.startswith("PRAGMA synchronous="):
            self._synchronous = super().execute("PRAGMA synchronous").fetchone()[0]
        return done

    _synchronous = FULL

    def __exit__(self, kind: Any, error: Any, trace: Any) -> Any:
        if kind is None:
            try:
                self.machine.operate()
                if self.machine.full:
                    raise _no_room()
            except BaseException:
                self.rollback()
                raise
        return super().__exit__(kind, error, trace)


def _no_room() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("database or disk is full (storm)")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    error.sqlite_errorname = "SQLITE_FULL"
    return error


class Disks:
    """All machines' disks below one folder, and the functions that stand in for those of `os`."""

    def __init__(self, root: Path) -> None:
        self._root = f"{root}{os.sep}"
        self.machines: dict[str, Machine] = {}
        self._open_files: dict[int, tuple[str, int]] = {}

    def add(self, name: str, *, loses_power: bool) -> Machine:
        """A machine with an empty disk."""
        folder = f"{self._root}{name}"
        REAL["mkdir"](folder)
        self.machines[name] = Machine(name, folder, loses_power)
        return self.machines[name]

    def machine_of(self, path: Any) -> Machine | None:
        """The machine on whose disk a path is; None for any other path."""
        text = os.fspath(path) if not isinstance(path, int) else ""
        if not isinstance(text, str) or not text.startswith(self._root):
            return None
        return self.machines.get(text[len(self._root) :].partition(os.sep)[0])

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let the functions of `os`, `io` and `sqlite3` work on these disks."""
        stand_ins = {name: getattr(self, f"_{name}") for name in REAL}
        for name, function in stand_ins.items():
            setattr(os, name, function)
        io.open, sqlite3.connect, shutil.rmtree = self._io_open, self._connect, self._rmtree  # type: ignore
        try:
            yield
        finally:
            for name, function in REAL.items():
                setattr(os, name, function)
            io.open, sqlite3.connect, shutil.rmtree = REAL_OPEN, REAL_CONNECT, REAL_RMTREE

    # --- what stands in ---
    def _open(self, path: Any, flags: int, *args: Any, **more: Any) -> int:
        machine = self.machine_of(path)
        if machine is None:
            return int(REAL["open"](path, flags, *args, **more))
        text = os.fspath(path)
        if flags & WRITES:
            self._begin_to_write(machine, text)
        descriptor = int(REAL["open"](path, flags, *args, **more))
        self._open_files[descriptor] = text, os.fstat(descriptor).st_ino
        return descriptor

    def _begin_to_write(self, machine: Machine, path: str) -> None:
        new = not os.path.exists(path)
        machine.operate(needs_room=new)
        if not new:
            machine.remember(path)
        elif machine.loses_power:
            REAL_OPEN(path, "xb").close()
            machine.before[os.stat(path).st_ino] = b""
            machine.changed(path, lambda: REAL["unlink"](path))

    def _close(self, descriptor: int) -> None:
        self._open_files.pop(descriptor, None)
        REAL["close"](descriptor)

    def _path_of(self, descriptor: int) -> str | None:
        """The path that was opened; None if a file object has closed the descriptor, and another has it."""
        path, inode = self._open_files.get(descriptor, (None, 0))
        if path is not None and os.fstat(descriptor).st_ino != inode:
            del self._open_files[descriptor]
            return None
        return path

    def _pwrite(self, descriptor: int, data: Any, offset: int) -> int:
        path = self._path_of(descriptor)
        machine = self.machine_of(path) if path is not None else None
        if machine is not None and path is not None:
            half = bytes(data[: len(data) // 2])
            machine.operate(needs_room=True, tear=lambda: REAL["pwrite"](descriptor, half, offset))
            machine.remember(path)
        return int(REAL["pwrite"](descriptor, data, offset))

    def _ftruncate(self, descriptor: int, length: int) -> None:
        path = self._path_of(descriptor)
        machine = self.machine_of(path) if path is not None else None
        if machine is not None and path is not None:
            machine.operate()
            machine.remember(path)
        REAL["ftruncate"](descriptor, length)

    def _fsync(self, descriptor: int) -> None:
        path = self._path_of(descriptor)
        machine = self.machine_of(path) if path is not None else None
        if machine is None or path is None:
            REAL["fsync"](descriptor)
            return
        machine.synced()
        machine.settled(path, os.fstat(descriptor).st_ino)

    def _replace(self, source: Any, target: Any, **more: Any) -> None:
        machine = self.machine_of(source)
        if machine is None:
            REAL["replace"](source, target, **more)
            return
        machine.operate()
        from_, to = os.fspath(source), os.fspath(target)
        restore = self._keep(machine, to)
        REAL["replace"](from_, to)

        def take_back() -> None:
            REAL["replace"](to, from_)
            restore()

        machine.changed(from_, take_back)

    _rename = _replace

    def _keep(self, machine: Machine, path: str) -> Callable[[], None]:
        """How to bring a file back that is about to lose this name."""
        if not machine.loses_power or not os.path.isfile(path):
            return lambda: None
        data, before = _content(path), machine.before.get(os.stat(path).st_ino)

        def restore() -> None:
            _write(path, data)
            if before is not None:
                machine.before[os.stat(path).st_ino] = before

        return restore

    def _unlink(self, path: Any, **more: Any) -> None:
        machine = self.machine_of(path)
        if machine is None:
            REAL["unlink"](path, **more)
            return
        machine.operate()
        text = os.fspath(path)
        restore = self._keep(machine, text)
        REAL["unlink"](text)
        machine.changed(text, restore)

    _remove = _unlink

    def _link(self, source: Any, target: Any, **more: Any) -> None:
        machine = self.machine_of(target)
        if machine is not None:
            machine.operate(needs_room=True)
        REAL["link"](source, target, **more)
        if machine is not None:
            text = os.fspath(target)
            machine.changed(text, lambda: REAL["unlink"](text))

    def _symlink(self, source: Any, target: Any, *args: Any, **more: Any) -> None:
        machine = self.machine_of(target)
        if machine is not None:
            machine.operate(needs_room=True)
        REAL["symlink"](source, target, *args, **more)

    def _mkdir(self, path: Any, *args: Any, **more: Any) -> None:
        machine = self.machine_of(path)
        exists = os.path.isdir(path)
        if machine is not None and not exists:
            machine.operate(needs_room=True)
        REAL["mkdir"](path, *args, **more)
        if machine is not None and not exists:
            text = os.fspath(path)
            machine.changed(text, lambda: _remove_tree(text), made=text)

    def _rmdir(self, path: Any, **more: Any) -> None:
        machine = self.machine_of(path)
        if machine is not None:
            machine.operate()
        REAL["rmdir"](path, **more)
        if machine is not None:
            text = os.fspath(path)
            machine.changed(text, lambda: REAL["mkdir"](text))

    def _rmtree(self, path: Any, *args: Any, **more: Any) -> None:
        if self.machine_of(path) is None:
            REAL_RMTREE(path, *args, **more)
            return
        for folder, folders, names in os.walk(path, topdown=False):
            for name in names:
                self._unlink(os.path.join(folder, name))
            for name in folders:
                self._rmdir(os.path.join(folder, name))
        if os.path.isdir(path):
            self._rmdir(path)

    def _io_open(self, file: Any, mode: str = "r", *args: Any, **more: Any) -> Any:
        machine = self.machine_of(file)
        if machine is None or not set(mode) & set("wax+"):
            return REAL_OPEN(file, mode, *args, **more)
        self._begin_to_write(machine, os.fspath(file))
        return Torn(REAL_OPEN(file, mode.replace("x", "w"), *args, **more), machine)

    def _connect(self, database: Any, *args: Any, **more: Any) -> Any:
        text = os.fspath(database)
        machine = self.machine_of(text)
        if machine is None:
            return REAL_CONNECT(database, *args, **more)
        machine.operate(needs_room=not os.path.exists(text))
        if machine.loses_power:
            machine.opened[text] = {
                path: _content(path) if os.path.exists(path) else b"" for path in (text, text + "-wal")
            }
        made: Database = REAL_CONNECT(database, *args, factory=Database, **more)
        made.machine, made.path = machine, text
        machine.databases.append(made)
        return made
