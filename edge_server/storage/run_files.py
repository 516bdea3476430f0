"""A run folder read back, every value checked."""

import contextlib
import itertools
import os
import shutil
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from edge_server.storage.records import RoundRecord, Summary
from schemas.errors import ConfigError

# Deleting files in another thread: a large file may take milliseconds, and a round leaves one per device.


class BackgroundDelete:
    """A folder on the same disk, to which files are moved before they are deleted."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._numbers = folder, itertools.count()
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="disposal")
        # Files that an earlier process has not deleted.
        shutil.rmtree(folder, ignore_errors=True)

    def take(self, path: Path) -> None:
        """Move the file away, to be deleted later; a missing file is ignored."""
        self._folder.mkdir(exist_ok=True)
        gone = self._folder / str(next(self._numbers))
        with contextlib.suppress(FileNotFoundError):
            path.replace(gone)
            self._pool.submit(os.unlink, gone)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        shutil.rmtree(self._folder, ignore_errors=True)


@dataclass(frozen=True)
class RunFiles:
    """The results of a run: its summary, its rounds in order, its federation file as text."""

    summary: Summary
    history: tuple[RoundRecord, ...]
    federation_toml: str


def read_run_files(directory: Path) -> RunFiles:
    """Read a run's three result files; raises `ConfigError` naming the one that is missing or broken."""
    if not directory.is_dir():
        raise ConfigError("expected a run folder, found no such directory", place=directory)
    return RunFiles(
        read_summary(directory / "summary.json"),
        read_history(directory / "history.jsonl"),
        _federation(directory / "federation.toml"),
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError(
            f"missing; is {path.parent} the folder of a run that has ended?", place=path
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {error}", place=path) from error


def read_summary(path: Path) -> Summary:
    try:
        return Summary.model_validate_json(_text(path))
    except ValidationError as error:
        raise ConfigError(f"not a summary: {first_validation_error(error)}", place=path) from error


def read_history(path: Path) -> tuple[RoundRecord, ...]:
    """The rounds of a `history.jsonl`; raises `ConfigError` naming the line that is broken."""
    # Split at line feeds only: `splitlines` would also cut at characters that may stand inside a string.
    lines = enumerate(_text(path).split("\n"), start=1)
    return tuple(_record(path, number, line) for number, line in lines if line.strip())


def known_rounds(path: Path) -> dict[int, RoundRecord]:
    """The readable rounds of a `history.jsonl`, by number; empty if the file is missing."""
    known = {}
    with contextlib.suppress(OSError, UnicodeDecodeError):
        for line in path.read_text(encoding="utf-8").split("\n"):
            with contextlib.suppress(ValidationError):
                record = RoundRecord.model_validate_json(line)
                known[record.round] = record
    return known


def _record(path: Path, number: int, line: str) -> RoundRecord:
    try:
        return RoundRecord.model_validate_json(line)
    except ValidationError as error:
        raise ConfigError(f"{path}, line {number}: not a round: {first_validation_error(error)}") from error


def _federation(path: Path) -> str:
    text = _text(path)
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not TOML: {error}", place=path) from error
    return text


def first_validation_error(error: ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}" if where else first["msg"]
