"""A small service folder with a run that is under way, and an authority."""

import sqlite3
from contextlib import closing
from pathlib import Path

from edge_server.fleet.backup.archive import Chain
from edge_server.fleet.backup.making import MadeBackup, make_backup
from edge_server.fleet.backup.restoring import restore_backup
from edge_server.fleet.backup.sealing import Sealer
from edge_server.fleet.backup.sources import sources_of
from edge_server.storage import audit_log
from edge_server.storage.inventory.inventory import Inventory
from edge_server.storage.journal import Journal
from edge_server.storage.service_folder import ServiceFolder
from tests.edge_server.rounds.by_hand import NAME, RUN, assignment

PASSPHRASE = "correct horse"
SEALER = Sealer.new(PASSPHRASE, cost=2**10)
KEY = b"-----BEGIN PRIVATE KEY-----\nsecret\n"
NOW = 1.8e9


class SmallService:
    """The folders below `base`, and what a test does with them."""

    def __init__(self, base: Path) -> None:
        self.base, self.folder = base, ServiceFolder(base / "service")
        self.run, self.authority = self.folder.runs / "home", base / "authority" / "home"
        with closing(Inventory(self.folder.inventory)) as inventory:
            inventory.add(NAME, "pi")
            inventory.set_labels(NAME, "pi", {"site": "barn"})
        self.folder.settings.write_text("")
        make_run(self.run)
        (self.folder.releases / "empty").mkdir(parents=True)
        (self.folder.releases / "current").symlink_to("empty")
        with closing(sqlite3.connect(made(self.folder.registry) / "registry.sqlite")) as registry:
            registry.executescript("CREATE TABLE versions (name TEXT); INSERT INTO versions VALUES ('v1')")
        audit_log.append_entry(self.folder.audit, who="local:me", what="label", target="pi")
        write(made(self.authority) / "ca.key", KEY, mode=0o600)
        write(self.authority / "ca.pem", b"certificate")
        made(self.authority / "codes")

    def backup(
        self, name: str, *, since: str = "", sealer: Sealer | None = SEALER, authority: bool = True
    ) -> MadeBackup:
        """Back everything up."""
        sources = sources_of(self.folder.path, (self.authority,) if authority else (), ())
        earlier = self.base / since if since else None
        return make_backup(self.base / name, sources, sealer=sealer, since=earlier, now=NOW)

    def restore(self, name: str, *, to: str = "new", sealer: Sealer | None = SEALER) -> Path:
        """Restore it into a folder."""
        with closing(Chain.open(self.base / name)) as chain:
            restore_backup(chain, self.base / to, sealer=sealer, now=NOW)
        return self.base / to


def make_run(run: Path) -> None:
    """A run whose second round is open."""
    write(made(run / "models" / "round-0001") / "state.safetensors", b"model" * 1000)
    write(made(run / "checkpoints") / "round-0000001.safetensors", b"state")
    write(made(run / "blobs") / ("a" * 64), b"an update")
    write(run / "blobs" / ("b" * 64 + ".part"), b"half of an update")
    write(run / "signing.key", KEY, mode=0o600)
    write(run / "federation.toml", b"[federation]\n")
    write(run / "history.jsonl", b'{"round": 1}\n{"rou')
    write(run / "lock", b"{}")
    write(run / "job.lock", b"{}")
    write(run / "job.log", b"round 1\nrou")
    with closing(Journal(run / "journal.sqlite")) as journal:
        journal.begun(RUN, NAME)
        journal.write_planning(1, 1, {"pi": assignment(1, 1)}, needed=1)
        journal.write_closed_round(1, "0" * 64, updates=(), over=("pi",), record="{}", traffic={})
        journal.write_planning(2, 2, {"pi": assignment(2, 2)}, needed=1)


def made(folder: Path) -> Path:
    """The folder, which is made if missing."""
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def write(path: Path, data: bytes, *, mode: int = 0o644) -> Path:
    """Write a file, and return its path."""
    path.write_bytes(data)
    path.chmod(mode)
    return path


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
