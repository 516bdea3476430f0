"""The releases of the client in a service folder.

releases.sqlite                    the rollouts
NAME/release.tar                   the archive of wheels, with release.tar.manifest.json, its signature
NAME/signing.pub                   the key that has signed it
"""

import shutil
import sqlite3
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from edge_client.security import trusted_key
from edge_client.storage.atomic_files import file_sha256, write_synced
from edge_client.storage.client_archive import DamagedArchive, read_release
from edge_server.releases.database import ROLLOUT_TABLES, open_database
from schemas.base import is_name
from schemas.errors import ConfigError, PeerError, nearest
from schemas.security.client_release import ClientRelease
from schemas.security.manifest import SignedManifest, decode_manifest, encode_manifest, manifest_path
from schemas.tensors.chunks import BlobRef

FORMAT = 1
ARCHIVE, PUBLIC_KEY = "release.tar", "signing.pub"


@dataclass(frozen=True)
class StoredRelease:
    """A release: its name, its archive, what the archive contains, its signature."""

    name: str
    archive: Path
    release: ClientRelease
    signed: SignedManifest

    @property
    def federation(self) -> str:
        """The federation whose devices it was signed for."""
        return self.signed.manifest.federation

    @property
    def ref(self) -> BlobRef:
        """The archive as devices fetch it."""
        return BlobRef(digest=self.signed.manifest.sha256, size=self.archive.stat().st_size)


class ReleaseStore:
    """The releases in a folder, made with the first one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def database(self) -> AbstractContextManager[sqlite3.Connection]:
        """A connection for one transaction of the rollouts."""
        path = self.folder / "releases.sqlite"
        return open_database(path, ROLLOUT_TABLES, version=FORMAT, what="the releases in")

    def names(self) -> list[str]:
        return sorted(path.parent.name for path in self.folder.glob(f"*/{ARCHIVE}"))

    def releases(self) -> list[StoredRelease]:
        """All releases, the newest first."""
        found = [self.release(name) for name in self.names()]
        return sorted(found, key=lambda stored: (-stored.signed.manifest.issued_at, stored.name))

    def release(self, name: str) -> StoredRelease:
        """The release of that name; raises `ConfigError`."""
        archive = self.folder / name / ARCHIVE
        if not is_name(name) or not archive.is_file():
            raise ConfigError(
                f"there is no client release '{name}' in {self.folder}{nearest(name, self.names())}",
                remedy="`edge-server client-release make` makes one",
            )
        try:
            signed = decode_manifest(manifest_path(archive).read_bytes())
            return StoredRelease(name, archive, read_release(archive), signed)
        except (OSError, PeerError, DamagedArchive) as error:
            raise ConfigError(str(error), place=archive, remedy="make the release again") from error

    def enter(self, name: str, archive: Path, signed: SignedManifest, public_text: str) -> StoredRelease:
        """Move an archive into the store; one of the same name must be the same. Raises `ConfigError`."""
        place = self.folder / name / ARCHIVE
        if place.is_file() and file_sha256(place) != signed.manifest.sha256:
            raise ConfigError(
                f"there is another release {name} in {self.folder}",
                remedy="give this one another name with --name",
            )
        place.parent.mkdir(parents=True, exist_ok=True)
        write_synced(place.with_name(PUBLIC_KEY), public_text.encode())
        write_synced(manifest_path(place), encode_manifest(signed))
        archive.replace(place)
        return self.release(name)

    def checked_release(self, name: str) -> StoredRelease:
        """The release, whose archive is that which was signed; raises `ConfigError`."""
        stored = self.release(name)
        try:
            key = trusted_key.read_trusted_key(stored.archive.with_name(PUBLIC_KEY))
            trusted_key.check_release(stored.signed, key, sha256=file_sha256(stored.archive), name=name)
        except PeerError as error:
            raise ConfigError(str(error), place=stored.archive, remedy="make the release again") from error
        return stored

    def copy(self, stored: StoredRelease, folder: Path) -> Path:
        """Copy a release and its signature for boards without a network; returns the archive's path."""
        path = folder / f"edge-client-{stored.name}.tar"
        shutil.copyfile(stored.archive, path)
        manifest_path(path).write_bytes(encode_manifest(stored.signed))
        shutil.copyfile(stored.archive.with_name(PUBLIC_KEY), folder / PUBLIC_KEY)
        return path
