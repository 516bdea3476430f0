"""What a backup says of itself: its files by path and digest, and the earlier backup that it builds on."""

from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from edge_server.fleet.backup.sealing import Seal
from schemas.base import Digest, Frozen

FORMAT = 1


def _inside(path: str) -> str:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path:
        raise ValueError("not a path inside the restored folder")
    return path


InnerPath = Annotated[str, AfterValidator(_inside)]  # A path inside the folder that a backup is restored to


class SavedFile(Frozen):
    """A file. Of a `sealed` one, digest and size are those of the sealed bytes; `mtime` is in nanoseconds."""

    path: InnerPath
    mode: int = Field(ge=0, le=0o777)
    mtime: int = Field(ge=-(2**63), lt=2**63)
    size: int = Field(ge=0)
    digest: Digest
    sealed: bool = False


class SavedFolder(Frozen):
    """A folder, which may be empty."""

    path: InnerPath
    mode: int = Field(ge=0, le=0o777)


class SavedLink(Frozen):
    """A symbolic link to a path below its own folder, which is all that a backup follows."""

    path: InnerPath
    target: InnerPath


class SavedRoot(Frozen):
    """A folder or file that was backed up: `origin` is where it lay, `path` where a restore puts it."""

    kind: Literal["service", "authority", "run", "registry", "key", "file"]
    origin: str
    path: str


class Parent(Frozen):
    """The earlier backup that an incremental one builds on: its id, and the name of its file."""

    id: str
    name: str = Field(pattern=r"^[^/\x00]+$")


class BackupManifest(Frozen):
    """The whole content. `stored` are the digests of the files that lie in this archive itself.

    `left_out` are keys that were not backed up, by their paths. `made_at` is in seconds since 1970.
    """

    format: int = FORMAT
    id: str = Field(pattern="^[0-9a-f]{32}$")
    program: str
    made_at: float
    parent: Parent | None = None
    roots: tuple[SavedRoot, ...]
    files: tuple[SavedFile, ...]
    folders: tuple[SavedFolder, ...] = ()
    links: tuple[SavedLink, ...] = ()
    stored: frozenset[Digest]
    left_out: tuple[str, ...] = ()
    seal: Seal | None = None

    @model_validator(mode="after")
    def _places_are_apart(self) -> "BackupManifest":
        folders = {PurePosixPath(folder.path) for folder in self.folders}
        files, links = (entry.path for entry in self.files), (entry.path for entry in self.links)
        others = [PurePosixPath(path) for path in (*files, *links)]
        taken = set(others)
        if len(taken) < len(others) or taken & folders:
            raise ValueError("two entries have the same path")
        if any(parent in taken for path in (*others, *folders) for parent in path.parents):
            raise ValueError("an entry lies below a file or a link")
        return self

    @property
    def bytes(self) -> int:
        """The bytes of all files, as they are announced."""
        return sum(file.size for file in self.files)

    @property
    def digests(self) -> frozenset[str]:
        """The digests of all files that are not sealed: this backup and its parents have their bytes."""
        return frozenset(file.digest for file in self.files if not file.sealed)
