"""Releases of the client: made of wheels, and as what a rollout offers."""

import re
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from edge_client.storage import atomic_files, client_archive
from edge_server.releases.client.store import ReleaseStore, StoredRelease
from edge_server.releases.rollout.journal import new_id
from edge_server.releases.rollout.state import Offering, Rollout, RolloutRules, TierFile, Words
from edge_server.releases.rollout.target import Target
from edge_server.security.signing_key import Signer
from edge_server.storage.run_files import first_validation_error
from schemas import topics, values
from schemas.base import fields_of
from schemas.errors import ConfigError, nearest
from schemas.messages import ClientOffer, ClientReport, ClientWithdrawal
from schemas.security.client_release import ClientRelease, fits_of, package_name, wheel_tags
from schemas.security.manifest import Manifest

# A client release is made of the wheels in a folder.

PACKAGE = "edge-federation"
_BOUND = re.compile(r"^Requires-Python:.*>=\s*(3\.[0-9]{1,2})", re.MULTILINE)
_EXTRA = re.compile(r"^Provides-Extra: *(\S+)", re.MULTILINE)
_NEEDS = re.compile(r"^Requires-Dist: *([\w.-]+)[^;\n]*(?:; *extra == ['\"]([\w.-]+)['\"])? *$", re.MULTILINE)


@dataclass(frozen=True)
class Wanted:
    """What shall be made: `name` is by default the version, `extras` are those of the package."""

    federation: str
    name: str | None = None
    extras: tuple[str, ...] = ()


def make_release(store: ReleaseStore, wheels: Path, wanted: Wanted, signer: Signer) -> StoredRelease:
    """Pack and sign the wheels of a folder, and store the release; raises `ConfigError`."""
    paths = sorted(wheels.glob("*.whl"))
    release = _describe(wheels, paths, wanted)
    name = wanted.name or release.version
    store.folder.mkdir(parents=True, exist_ok=True)
    aside = store.folder / f".{name}.tar"
    try:
        client_archive.write_archive(aside, release, paths)
        manifest = Manifest(
            what="client-release",
            federation=wanted.federation,
            run=name,
            round=0,
            sha256=atomic_files.file_sha256(aside),
            issued_at=int(time.time()),
        )
        return store.enter(name, aside, signer.sign(manifest), signer.public_text)
    except ValidationError as error:
        raise ConfigError(
            "1 to 64 letters, digits, dots, dashes, underscores", key=f"--name '{name}'"
        ) from error
    finally:
        aside.unlink(missing_ok=True)


def _describe(folder: Path, paths: Sequence[Path], wanted: Wanted) -> ClientRelease:
    ours = [path for path in paths if (tags := wheel_tags(path.name)) and tags.package == PACKAGE]
    if len(ours) != 1:
        found = "no wheel" if not ours else f"{len(ours)} wheels"
        raise ConfigError(
            f"{found} of {PACKAGE}, a release has one",
            key=f"--wheels {folder}",
            remedy=_collecting(folder, ("onnx-client", "trust")),
        )
    about = _metadata(ours[0])
    _check_needs(folder, paths, about, wanted.extras)
    fits = fits_of([path.name for path in paths])
    if not fits:
        raise ConfigError(
            "there is no board for which every package has a wheel",
            key=f"--wheels {folder}",
            remedy="make one release for each processor and Python, each from its own folder",
        )
    tags = wheel_tags(ours[0].name)
    assert tags is not None
    try:
        return ClientRelease(
            version=tags.version,
            extras=wanted.extras,
            python=_python_bound(about),
            fits=fits,
            installed_bytes=sum(map(_unpacked_bytes, paths)),
            wheels=client_archive.describe_wheels(paths),
        )
    except ValidationError as error:
        raise ConfigError(first_validation_error(error), key=f"--wheels {folder}") from error


def _collecting(folder: Path, extras: Sequence[str]) -> str:
    wanted = f"{PACKAGE}[{','.join(extras)}]".replace("[]", "")
    return f"`pip download -d {folder} '{wanted}'` on a board of that kind collects all that it needs"


def _check_needs(folder: Path, wheels: Sequence[Path], about: str, extras: Sequence[str]) -> None:
    """Raise `ConfigError` for an unknown extra, and for a requirement of the package without a wheel."""
    known = _EXTRA.findall(about)
    if unknown := next((extra for extra in extras if extra not in known), None):
        raise ConfigError(f"{PACKAGE} has no extra '{unknown}'{nearest(unknown, known)}", key="--extras")
    there = {tags.package for wheel in wheels if (tags := wheel_tags(wheel.name))}
    needs = {package_name(name) for name, extra in _NEEDS.findall(about) if not extra or extra in extras}
    if lacking := sorted(needs - there):
        reason = f"no wheel of {', '.join(lacking)}, which {PACKAGE} needs"
        raise ConfigError(reason, key=f"--wheels {folder}", remedy=_collecting(folder, extras))


def _metadata(wheel: Path) -> str:
    with _open_wheel(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return archive.read(names[0]).decode(errors="replace") if names else ""


def _python_bound(about: str) -> str:
    """The lower bound of the Python that the package needs, such as `>=3.11`."""
    found = _BOUND.search(about)
    return f">={found[1]}" if found else ""


def _unpacked_bytes(wheel: Path) -> int:
    with _open_wheel(wheel) as archive:
        return sum(entry.file_size for entry in archive.infolist())


def _open_wheel(wheel: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(wheel)
    except (OSError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{wheel} is not a wheel: {error}", remedy="fetch it again") from error


ONLY = 1  # The number of the only file: a release has one archive for all of its devices


class ClientOffering(Offering):
    """One release: each device gets the same archive."""

    words = Words(
        use="run",
        uses="runs",
        fetches="fetches it",
        compares="installs and checks it next to the running client",
        watch="devices watch the new client for {seconds:g} s before they keep it (--watch)",
        command="edge-server client-release rollout",
    )
    role: topics.Role = "updates"
    down = topics.Channel.DOWN_FLEET
    offers, withdrawals, reports = ClientOffer, ClientWithdrawal, ClientReport

    def __init__(self, release: ClientRelease) -> None:
        self._release = release

    def filters(self, federation: str) -> tuple[str, ...]:
        return topics.operator_filters(federation)

    def tier(self, rollout: Rollout, device: str, profile: values.CapabilityProfile) -> int:
        return ONLY

    def stated(self, target: Target) -> dict[str, Any]:
        return fields_of(self._release, "fits", "python", "installed_bytes")


def new_rollout(stored: StoredRelease, rules: RolloutRules) -> Rollout:
    return Rollout(
        new_id(stored.name),
        stored.name,
        stored.federation,
        rules,
        {ONLY: TierFile(stored.ref, stored.signed)},
        ClientOffering(stored.release),
    )
