"""Begin a rollout, resume an interrupted one, or reopen one to withdraw it."""

import contextlib
import fcntl
import hashlib
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from edge_client.security.trusted_key import check_model, read_trusted_key
from edge_server.releases.registry.registry import Registry, TierModel, Version
from edge_server.releases.rollout.groups import MODELS
from edge_server.releases.rollout.journal import RolloutDatabase, RolloutEntry, RolloutJournal, new_id
from edge_server.releases.rollout.state import Rollout, RolloutPhase, RolloutRules, TierFile
from edge_server.rounds.fleet import Membership
from edge_server.storage.inventory.inventory import Inventory
from edge_server.storage.service_folder import ServiceFolder
from schemas.errors import ConfigError
from schemas.security.manifest import decode_manifest, manifest_path
from schemas.selectors import parse_where
from schemas.tensors.chunks import BlobRef


@contextlib.contextmanager
def rollout_lock(registry: RolloutDatabase, federation: str) -> Iterator[None]:
    """Lock a federation's rollouts; raises `ConfigError` if another process holds the lock."""
    with (registry.folder / f"rollout-{federation}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"a rollout of federation {federation} is in progress in another process",
                remedy="one at a time",
            ) from None
        yield


def wanted_version(registry: Registry, name: str | None, federation: str | None) -> Version:
    """The version of that name, or the active one; raises `ConfigError`."""
    if name is not None:
        return registry.version(name)
    actives = registry.actives()
    if federation is not None:
        actives = {key: value for key, value in actives.items() if key == federation}
    if len(actives) == 1:
        return registry.version(next(iter(actives.values())))
    if actives:
        raise ConfigError(
            f"name a version, or one of the federations with --federation: {', '.join(actives)}"
        )
    raise ConfigError("name a version: none is active yet (`edge-server models list` shows what there is)")


def check_signed(version: Version) -> None:
    """Raise `ConfigError` for a version that no device would take."""
    if version.key is None:
        raise ConfigError(
            f"{version.version} is not signed, so no device could tell it from a forgery",
            remedy="roll out a version that a run has signed (`edge-server models list` shows which)",
        )


def offered_files(registry: Registry, version: Version) -> dict[int, TierFile]:
    """The files to offer, by tier, each checked against its signature; raises `ConfigError`."""
    check_signed(version)
    key = read_trusted_key(registry.version_path(version.version) / "signing.pub")
    files = {}
    for tier in version.tiers:
        path = registry.onnx(version.version, tier.tier)
        check_model(path, _read(path, tier), key, exported_by="server")
        manifest = decode_manifest(manifest_path(path).read_bytes())
        files[tier.tier] = TierFile(BlobRef(digest=tier.sha256, size=tier.bytes), manifest)
    return files


def _read(path: Path, tier: TierModel) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            str(error.strerror), place=path, remedy="enter the run again with `edge-server models add`"
        ) from error
    if hashlib.sha256(data).hexdigest() != tier.sha256:
        raise ConfigError(
            f"{path} is not the file that was entered", remedy="enter the run again with `models add`"
        )
    return data


def model_rollout(version: Version, rules: RolloutRules, files: dict[int, TierFile]) -> Rollout:
    """A new rollout of a version of the models."""
    named = (new_id(version.version), version.version, version.federation)
    return Rollout(*named, rules, files, MODELS, device_tiers=version.device_tiers)


def begin_or_continue(journal: RolloutJournal, fresh: Rollout) -> tuple[Rollout, bool]:
    """Begin this rollout, or resume the unfinished one of its version by its own rules.

    Returns the rollout, and whether it was resumed. Raises `ConfigError` if another version's is open.
    """
    left = next((entry for entry in journal.newest(fresh.federation) if not entry.over), None)
    if left is None:
        journal.begin(fresh)
        return fresh, False
    if left.version != fresh.version:
        command = f"{fresh.offering.words.command} {left.version}"
        raise ConfigError(
            f"a rollout of {left.version} is not finished",
            remedy=f"continue it with `{command}`, or withdraw it with `{command} --withdraw`",
        )
    loaded = journal.load_rollout(left.id, fresh.files, now=time.monotonic(), offering=fresh.offering)
    return replace(loaded, device_tiers=fresh.device_tiers), True


def begin_for_devices(journal: RolloutJournal, fresh: Rollout) -> Rollout:
    """Begin this rollout to the devices that its rules name, or resume it.

    Raises `ConfigError` while any other rollout of the federation is unfinished.
    """
    entries = journal.newest(fresh.federation)
    version = next((entry.version for entry in entries if not entry.over), fresh.version)
    if version == fresh.version:
        begun, _ = begin_or_continue(journal, fresh)
        if begun.rules.only == fresh.rules.only:
            return begun
    raise ConfigError(f"a rollout of {version} is not finished", remedy=f"`edge-server rollout {version}`")


def with_labels(rollout: Rollout, folder: ServiceFolder) -> Rollout:
    """The rollout for the devices of its selector, by their labels and those in the folder's inventory."""
    own_labels, sites = {}, set[str]()
    if folder.inventory.exists():
        with contextlib.closing(Inventory(folder.inventory)) as inventory:
            own_labels = inventory.labels(rollout.federation)
            devices = inventory.devices(federation=rollout.federation)
            sites = {device.site for device in devices if device.site}
    where = parse_where(rollout.rules.where)
    membership = Membership(where, rollout.federation, tuple(sorted(sites)), own_labels)
    return replace(rollout, fleet=rollout.fleet.with_membership(membership))


def reopen(journal: RolloutJournal, wanted: Rollout) -> Rollout:
    """The newest rollout of this version, reopened so that it can be stopped; raises `ConfigError`."""
    known = [entry for entry in journal.newest(wanted.federation) if entry.version == wanted.version]
    if not known:
        raise ConfigError(f"{wanted.version} was never rolled out: there is nothing to withdraw")
    _refuse_others(journal, wanted.federation, known[0])
    loaded = journal.load_rollout(known[0].id, wanted.files, now=time.monotonic(), offering=wanted.offering)
    return replace(loaded, phase=RolloutPhase.RUNNING) if loaded.over else loaded


def _refuse_others(journal: RolloutJournal, federation: str, meant: RolloutEntry) -> None:
    """Refuse if another version was rolled out later and not stopped: devices use that one now."""
    entries = journal.newest(federation)
    lasting = [entry for entry in entries if entry.phase is not RolloutPhase.STOPPED]
    newest = lasting[0] if lasting else meant
    if newest.version != meant.version:
        raise ConfigError(
            f"{newest.version} was rolled out after {meant.version}",
            remedy="withdraw that one, or roll another version out",
        )
