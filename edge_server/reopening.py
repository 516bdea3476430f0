"""A run's folder when its server starts: a new one, or that of a run that was cut off."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from edge_client.files import write_synced
from edge_server.config import Config
from edge_server.depot.settings import BlobSettings
from edge_server.federation import RoundRules
from edge_server.journal_reader import JournalReader
from edge_server.recovery import Recovered, recover
from edge_server.run_folder import RunFolder
from edge_server.same_run import differences
from schemas.errors import ConfigError, EdgeError
from schemas.frozen import kebab

MAY_DIFFER = frozenset({"federation.rounds", *(f"blobs.{kebab(name)}" for name in BlobSettings.model_fields)})
"""A run may go on for longer than was meant at first, and send its blobs another way."""


def unfinished_run(runs: Path, config: Config) -> Path | None:
    """The newest folder below `runs` with a run of this very configuration that was cut off."""
    folders = [path.parent for path in runs.glob("*/journal.sqlite")]
    for folder in sorted(folders, key=lambda path: path.stat().st_mtime, reverse=True):
        with contextlib.suppress(EdgeError, OSError):
            if not RunFolder(folder).ended and _begun(folder) and _is_of(folder, config):
                return folder
    return None


@contextlib.contextmanager
def locked(out: Path) -> Iterator[None]:
    """One server at a time; the lock goes with its process. Raises `ConfigError` where another has it."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with (out / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
    except BlockingIOError as error:
        raise ConfigError(f"{out} is in use: another server runs there") from error
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        raise ConfigError(f"--out {out}: {error.strerror}") from error


Opened = tuple[RunFolder, Recovered | None]


def open_run(out: Path, config: Config, rules: RoundRules, *, now: float) -> Opened:
    """The folder of a new run, or of one that goes on; raises `ConfigError` for one of something else."""
    folder = RunFolder(out)
    if not (out / "history.jsonl").exists() or folder.ended:
        return RunFolder.create(out, config), None
    if not _begun(out):
        return _afresh(folder, config), None
    for key, before, after in differences(out / "federation.toml", config, MAY_DIFFER):
        raise ConfigError(
            f"--out {out} holds an unfinished run in which {key} is {before!r}, not {after!r}: "
            "go on with that, or name another folder"
        )
    write_synced(out / "federation.toml", config.to_toml().encode())
    with contextlib.closing(JournalReader(folder.journal)) as reader:
        recovered = recover(reader, rules, config.federation.name, now=now)
    if recovered is None:
        raise ConfigError(f"{out} holds a simulated run: name another folder with --out, or remove it")
    folder.rewrite_history(recovered.history)
    return folder, recovered


def _begun(out: Path) -> bool:
    """Whether anything was planned in it; one that was cut off before has nothing to go on from."""
    if (out / "history.jsonl").stat().st_size:
        return True
    try:
        with contextlib.closing(JournalReader(out / "journal.sqlite")) as reader:
            return bool(reader.plannings())
    except ConfigError:
        return False  # cut off while the journal was made


def _is_of(folder: Path, config: Config) -> bool:
    return not any(differences(folder / "federation.toml", config, MAY_DIFFER))


def _afresh(folder: RunFolder, config: Config) -> RunFolder:
    (folder.path / "history.jsonl").unlink()
    return RunFolder.create(folder.path, config)
