"""The run folder when a server starts: a new one, or that of an unfinished run."""

import contextlib
import fcntl
import json
import logging
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from edge_client.storage.atomic_files import write_synced
from edge_server.config import load, object_store
from edge_server.config.config import Config
from edge_server.coordinator.standby import replica_copy, replica_source
from edge_server.rounds.state import RoundRules
from edge_server.storage import records, recovery, run_files
from edge_server.storage.journal_reader import JournalReader
from edge_server.storage.run_folder import RunFolder
from edge_server.transport.lease.holder import in_words, this_process
from schemas.base import kebab
from schemas.errors import ConfigError, EdgeError
from schemas.messages import LeaseHolder

log = logging.getLogger(__name__)

LOCK = "lock"
MAY_DIFFER = frozenset(
    {
        "federation.rounds",
        "federation.aggregators",
        "federation.testers",
        *(f"object-store.{kebab(name)}" for name in object_store.ObjectStoreSettings.model_fields),
    }
)  # Keys that may change when a run is resumed


def unfinished_run(runs: Path, config: Config) -> Path | None:
    """The newest folder below `runs` with an unfinished run of this configuration."""
    folders = [path.parent for path in runs.glob("*/journal.sqlite")]
    for folder in sorted(folders, key=lambda path: path.stat().st_mtime, reverse=True):
        try:
            differs = any(load.differences(folder / "federation.toml", config, MAY_DIFFER))
            if not RunFolder(folder).has_ended and not differs and _begun(RunFolder(folder)):
                return folder
        except (EdgeError, OSError) as error:
            log.warning("%s cannot be resumed: %s", folder, error)
    return None


def finished_run(out: Path, config: Config) -> records.Summary | None:
    """The summary of a finished run of this configuration in `out`; None if there is none."""
    if not RunFolder(out).has_ended:
        return None
    with contextlib.suppress(EdgeError, OSError, ValueError):
        summary = records.Summary.model_validate_json((out / "summary.json").read_bytes())
        if summary.outcome == "finished" and not any(load.differences(out / "federation.toml", config)):
            return summary
    return None


@contextlib.contextmanager
def lock_folder(out: Path) -> Iterator[None]:
    """Lock the folder for this process; raises `ConfigError` if another process has it."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        # Not emptied before it is locked: it says who has it.
        with (out / LOCK).open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.truncate(0)
            file.write(this_process(out).model_dump_json())
            file.flush()
            yield
    except BlockingIOError as error:
        holder = lock_holder(out)
        who = "" if holder is None else f": {in_words(holder)}"
        raise ConfigError(f"{out} is in use: another server runs there{who}") from error
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        raise ConfigError(str(error.strerror), key=f"--out {out}") from error


def lock_holder(out: Path) -> LeaseHolder | None:
    """The process that has locked the folder, or had; None if that is unknown."""
    with contextlib.suppress(OSError, ValueError):
        return LeaseHolder.model_validate_json((out / LOCK).read_bytes())
    return None


def read_run_and_epoch(out: Path) -> tuple[str | None, int]:
    """The run in the folder and the last epoch in which it was served; None and 1 for a new one."""
    journal = RunFolder(out).journal
    with contextlib.suppress(EdgeError, OSError, sqlite3.Error):
        if journal.exists() and not RunFolder(out).has_ended:
            with contextlib.closing(JournalReader(journal)) as reader:
                return reader.run(), max(reader.epochs(), default=1)
    return None, 1


Opened = tuple[RunFolder, recovery.Recovered | None]


def open_run(out: Path, config: Config, rules: RoundRules, *, now: float) -> Opened:
    """The folder of a new run, or of one to resume; raises `ConfigError` if it holds another run."""
    folder = RunFolder(out)
    if replica_copy.is_copy(out):
        raise ConfigError(
            f"--out {out} is the copy of a standby, which may lack what devices have received",
            remedy="`edge-server standby` takes over by itself; if its server is lost, remove "
            f"{out / replica_source.COPIED} to continue here",
        )
    if folder.has_ended or not (folder.history.exists() or folder.journal.exists()):
        return RunFolder.create(out, config), None
    if not _begun(folder):
        folder.history.unlink(missing_ok=True)
        return RunFolder.create(folder.path, config), None
    for key, before, after in load.differences(out / "federation.toml", config, MAY_DIFFER):
        raise ConfigError(
            f"--out {out} holds an unfinished run in which {key} is {before!r}, not {after!r}",
            remedy="continue with that, or name another folder",
        )
    write_synced(out / "federation.toml", config.to_toml().encode())
    lines = run_files.known_rounds(folder.history)
    with contextlib.closing(JournalReader(folder.journal)) as reader:
        recovered = recovery.recover(
            reader, rules, config.federation.name, now=now, lines=lines, model_of=_model_of(folder)
        )
    if recovered is None:
        raise ConfigError(
            f"{out} holds a simulated run", remedy="name another folder with --out, or remove it"
        )
    if [*lines.values()] != [*recovered.history]:
        log.warning("%s differs from the journal and is rewritten", folder.history)
    folder.rewrite_history(recovered.history)
    return folder, recovered


def _begun(folder: RunFolder) -> bool:
    """Whether a round was planned; before that there is nothing to resume.

    Raises `ConfigError` for a run that has begun and whose journal cannot be read.
    """
    if (folder.history.exists() and folder.history.stat().st_size) or folder.version(1).exists():
        return True
    if not folder.journal.exists() or not _is_made(folder.journal):
        return False  # cut off while the journal was made
    with contextlib.closing(JournalReader(folder.journal)) as reader:
        return bool(reader.plannings())


def _is_made(journal: Path) -> bool:
    """Whether the journal has its tables, or what there is of it is damaged."""
    try:
        with contextlib.closing(
            sqlite3.connect(f"{journal.resolve().as_uri()}?mode=ro", uri=True)
        ) as connection:
            return bool(connection.execute("PRAGMA user_version").fetchone()[0])
    except sqlite3.Error:
        return True


def _model_of(folder: RunFolder) -> str | None:
    """The run that the newest model names; None without a model, and in a simulation, which signs none."""
    if not (folder.path / "signing.pub").exists():
        return None
    for path in sorted(folder.path.glob("models/round-*/manifest.json"), reverse=True):
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            return str(json.loads(path.read_bytes())["run"])
    return None
