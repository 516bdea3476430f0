"""A backup with the earlier ones that it builds on."""

import os
from pathlib import Path
from typing import BinaryIO

from edge_server.fleet.backup.archive import ArchiveReader
from edge_server.fleet.backup.manifest import BackupManifest, SavedFile
from schemas.errors import ConfigError

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
