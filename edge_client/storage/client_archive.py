"""The archive of a client release: a tar with `release.json` and the wheels, always of the same bytes."""

import contextlib
import io
import shutil
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from pydantic import ValidationError

from edge_client.storage.atomic_files import file_sha256, written_aside
from schemas.errors import EdgeError
from schemas.security.client_release import ClientRelease, WheelFile

DESCRIPTION = "release.json"
MAX_DESCRIPTION_BYTES = 1024 * 1024
_COPY_BYTES = 1024 * 1024


class DamagedArchive(EdgeError):
    """The archive is not a whole release; nothing of it may be installed."""


def write_archive(path: Path, release: ClientRelease, wheels: Sequence[Path]) -> None:
    """Write the archive atomically; `wheels` in the order of the release's list."""
    text = release.model_dump_json(indent=1).encode()
    with (
        written_aside(path) as file,
        tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        archive.addfile(_entry(DESCRIPTION, len(text)), io.BytesIO(text))
        for wheel in wheels:
            with wheel.open("rb") as content:
                archive.addfile(_entry(wheel.name, wheel.stat().st_size), content)


def _entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, 0o644
    return entry


def describe_wheels(paths: Sequence[Path]) -> tuple[WheelFile, ...]:
    files = [(path.name, file_sha256(path), path.stat().st_size) for path in paths]
    return tuple(WheelFile(name=name, sha256=digest, bytes=size) for name, digest, size in files)


def read_release(path: Path) -> ClientRelease:
    """The description in an archive; raises `DamagedArchive`."""
    with _open_archive(path) as archive:
        return _description(archive)


def unpack_wheels(path: Path, folder: Path) -> ClientRelease:
    """Write an archive's wheels into an empty folder, each checked by its digest; raises `DamagedArchive`.

    Names come from the description, which allows no separators, and entries other than files are refused.
    """
    with _open_archive(path) as archive:
        release = _description(archive)
        wanted = {wheel.name: wheel for wheel in release.wheels}
        for entry, content in _files(archive):
            wheel = wanted.pop(entry.name, None)
            if wheel is None:
                raise DamagedArchive(f"{path.name}: {entry.name[:80]} is not in the list of its wheels")
            if entry.size != wheel.bytes:
                raise DamagedArchive(f"{path.name}: {wheel.name} has not the {wheel.bytes} bytes of the list")
            with (folder / wheel.name).open("wb") as file:
                shutil.copyfileobj(content, file, _COPY_BYTES)
            if file_sha256(folder / wheel.name) != wheel.sha256:
                raise DamagedArchive(f"{path.name}: {wheel.name} is not the file that was packed")
    if wanted:
        raise DamagedArchive(f"{path.name}: {', '.join(sorted(wanted))} is missing")
    return release


@contextlib.contextmanager
def _open_archive(path: Path) -> Iterator[tarfile.TarFile]:
    """The archive; what tarfile finds wrong in the block is `DamagedArchive`."""
    try:
        with tarfile.open(path, mode="r:") as archive:
            yield archive
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise DamagedArchive(f"{path.name} is not a whole archive of a client release: {error}") from error


def _files(archive: tarfile.TarFile) -> Iterator[tuple[tarfile.TarInfo, IO[bytes]]]:
    """The files after the description; raises `DamagedArchive` for anything else."""
    while (entry := archive.next()) is not None:
        content = archive.extractfile(entry) if entry.isreg() else None
        if content is None:
            raise DamagedArchive(f"{entry.name[:80]} is not a file")
        yield entry, content


def _description(archive: tarfile.TarFile) -> ClientRelease:
    entry = archive.next()
    fits = entry is not None and entry.name == DESCRIPTION and entry.size <= MAX_DESCRIPTION_BYTES
    content = archive.extractfile(entry) if fits and entry is not None and entry.isreg() else None
    if content is None:
        raise DamagedArchive(f"its first file is not {DESCRIPTION}")
    try:
        return ClientRelease.model_validate_json(content.read())
    except ValidationError as error:
        detail = str(error).partition("\n")[0]
        why = f"was not written by this version or an earlier one: {detail}"
        raise DamagedArchive(f"{DESCRIPTION} {why}") from error
