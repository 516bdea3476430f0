"""The file of a backup: a zip archive (zip64) of files named by their digests, with a manifest.

    manifest.json      `BackupManifest`, written last
    blobs/DIGEST       a file, once for all equal ones
    sealed/DIGEST      a file sealed with the passphrase

`unzip` reads it too.
"""

import hashlib
import os
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from pydantic import ValidationError

from edge_client.security.identity.private_files import OWNER_FILE
from edge_server.fleet.backup.manifest import FORMAT, BackupManifest, SavedFile
from edge_server.fleet.backup.steady_files import FileChanged, stamp
from schemas.errors import ConfigError

MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 2**28  # A million files have as much
COPY_BYTES = 2**20
WORTH_COMPRESSING = frozenset({".sqlite", ".json", ".jsonl", ".toml", ".html", ".md", ".csv", ".txt"})


def owner_file(path: Path) -> BinaryIO:
    """Open a new file for writing that only its owner may read."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, OWNER_FILE), "wb")


class ArchiveWriter:
    """Stores files in an archive; those whose digests are `known` lie in an earlier one."""

    def __init__(self, file: BinaryIO, known: frozenset[str] = frozenset()) -> None:
        self._zip = zipfile.ZipFile(file, "w", allowZip64=True)
        self._known = known
        self.stored: set[str] = set()

    def store_file(self, path: Path) -> tuple[str, int]:
        """Store a file, and return its digest and size; raises `FileChanged` if it was written meanwhile."""
        with path.open("rb") as file:
            before = stamp(file)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            if not self._has(digest):
                file.seek(0)
                if self.copy_file(file, digest, path.suffix) != digest:
                    raise FileChanged(path)
                self.stored.add(digest)
            if stamp(file) != before:
                raise FileChanged(path)
        return digest, before.size

    def store_bytes(self, data: bytes, suffix: str = "") -> tuple[str, int]:
        digest = hashlib.sha256(data).hexdigest()
        if not self._has(digest):
            self._zip.writestr(_member(f"blobs/{digest}", suffix), data)
            self.stored.add(digest)
        return digest, len(data)

    def store_sealed(self, sealed: bytes) -> tuple[str, int]:
        digest = hashlib.sha256(sealed).hexdigest()
        self._zip.writestr(_member(f"sealed/{digest}"), sealed)
        self.stored.add(digest)
        return digest, len(sealed)

    def finish(self, manifest: BackupManifest) -> None:
        self._zip.writestr(_member(MANIFEST, ".json"), manifest.model_dump_json())
        self._zip.close()

    def __enter__(self) -> "ArchiveWriter":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._zip.fp = None  # nothing more is written: the file is given up

    def _has(self, digest: str) -> bool:
        return digest in self._known or digest in self.stored

    def copy_file(self, file: BinaryIO, digest: str, suffix: str) -> str:
        hashed = hashlib.sha256()
        with self._zip.open(_member(f"blobs/{digest}", suffix), "w", force_zip64=True) as member:
            while data := file.read(COPY_BYTES):
                hashed.update(data)
                member.write(data)
        return hashed.hexdigest()


class ArchiveReader:
    """Reads one archive; raises `ConfigError` for a file that is not a whole backup."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._zip = zipfile.ZipFile(path)
            if self._zip.getinfo(MANIFEST).file_size > MAX_MANIFEST_BYTES:
                raise ConfigError(
                    "its manifest is too large for a backup", place=path, remedy="use another one"
                )
            self.manifest = self._manifest(self._zip.read(MANIFEST))
        except OSError as error:
            raise ConfigError(
                f"{error.strerror or error}", place=path, remedy="name the file of a backup"
            ) from error
        except (zipfile.BadZipFile, KeyError, RuntimeError, NotImplementedError) as error:
            raise ConfigError(
                f"not a backup, or not whole ({error})", place=path, remedy="use another one"
            ) from error

    @contextmanager
    def open_file(self, file: SavedFile) -> Iterator[BinaryIO]:
        """A stored file, its bytes unchecked."""
        folder = "sealed" if file.sealed else "blobs"
        try:
            with self._zip.open(f"{folder}/{file.digest}") as member:
                yield member  # type: ignore[misc]
        except (zipfile.BadZipFile, KeyError, EOFError) as error:
            raise ConfigError(
                f"{file.path} is damaged ({error})", place=self.path, remedy="use another backup"
            ) from error

    def copy_to(self, file: SavedFile, target: BinaryIO) -> None:
        """Write a file's bytes; raises `ConfigError` if they are not those of its digest."""
        with self.open_file(file) as member:
            shutil.copyfileobj(_Checked(member, file, self.path), target, COPY_BYTES)

    def close(self) -> None:
        self._zip.close()

    def _manifest(self, data: bytes) -> BackupManifest:
        try:
            return BackupManifest.model_validate_json(data)
        except ValidationError as error:
            found = _format_of(data)
            if found is not None and found > FORMAT:
                raise ConfigError(
                    f"a backup of format {found}; this program reads format {FORMAT}",
                    place=self.path,
                    remedy="install the version that made it",
                ) from error
            raise ConfigError(
                "the manifest cannot be read", place=self.path, remedy="use another backup"
            ) from error


class _Checked:
    """Reads a member up to the size that the manifest announces, and compares its digest at its end."""

    def __init__(self, member: BinaryIO, file: SavedFile, archive: Path) -> None:
        self._member, self._file, self._archive = member, file, archive
        self._hashed, self._left = hashlib.sha256(), file.size

    def read(self, size: int = -1) -> bytes:
        data = self._member.read(size)
        self._hashed.update(data)
        self._left -= len(data)
        if self._left < 0 or (not data and self._hashed.hexdigest() != self._file.digest):
            raise ConfigError(
                f"{self._file.path} is damaged", place=self._archive, remedy="use another backup"
            )
        return data


def _member(name: str, suffix: str = "") -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(name)
    member.external_attr = OWNER_FILE << 16
    if suffix in WORTH_COMPRESSING:
        member.compress_type = zipfile.ZIP_DEFLATED
    return member


def _format_of(data: bytes) -> int | None:
    from pydantic_core import from_json

    try:
        found = from_json(data)["format"]
    except (ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, int) else None


# A backup with the earlier ones that it builds on.
MAX_PARENTS = 1000


class Chain:
    """The archives of a backup, the newest first; its parents lie next to it under the stated names."""

    def __init__(self, archives: list[ArchiveReader]) -> None:
        self._archives = archives
        self._places = {
            digest: archive for archive in reversed(archives) for digest in archive.manifest.stored
        }

    @classmethod
    def open(cls, path: Path) -> "Chain":
        """Open a backup and its parents; raises `ConfigError` that names a missing one."""
        archives = [ArchiveReader(path)]
        while (parent := archives[-1].manifest.parent) is not None:
            place = path.parent / parent.name
            if not place.is_file():
                raise ConfigError(
                    f"{archives[-1].path} builds on the earlier backup {parent.name}, which is missing",
                    remedy=f"put it into {path.parent.absolute()}",
                )
            archives.append(ArchiveReader(place))
            if archives[-1].manifest.id != parent.id:
                raise ConfigError(
                    f"{place} is not the backup that {archives[-2].path.name} builds on",
                    remedy="put the right one in its place",
                )
            if len(archives) > MAX_PARENTS:
                raise ConfigError(f"more than {MAX_PARENTS} parents", place=path, remedy="make a full backup")
        return cls(archives)

    @property
    def manifest(self) -> BackupManifest:
        """That of the newest archive: what a restore makes."""
        return self._archives[0].manifest

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files of the chain, the newest first."""
        return tuple(archive.path for archive in self._archives)

    def copy_to(self, file: SavedFile, target: BinaryIO) -> None:
        """Write a file's checked bytes; raises `ConfigError` if no archive has them."""
        archive = self._places.get(file.digest)
        if archive is None:
            raise ConfigError(
                f"the bytes of {file.path} are in none of its archives",
                place=self._archives[0].path,
                remedy="use another backup",
            )
        archive.copy_to(file, target)

    def verify(self) -> int:
        """Read every file of the manifest and compare its digest; returns their bytes."""
        checked: set[str] = set()
        for file in self.manifest.files:
            if file.digest not in checked:
                with Path(os.devnull).open("wb") as nowhere:
                    self.copy_to(file, nowhere)
                checked.add(file.digest)
        return self.manifest.bytes

    def close(self) -> None:
        for archive in self._archives:
            archive.close()
