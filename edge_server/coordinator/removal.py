"""Taking a device out of a finished run whose heads were solved from sums, exactly, however late."""

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edge_client.models import build, fixed_state
from edge_client.storage.atomic_files import unlink
from edge_server.config.load import load_config
from edge_server.coordinator.global_model import GlobalModel
from edge_server.security.manifest_signer import ManifestSigner
from edge_server.security.secure_aggregation.protocol import COHORT
from edge_server.storage.journal import Journal
from edge_server.storage.journal_reader import JournalReader
from edge_server.storage.records import RoundRecord
from edge_server.storage.run_folder import RunFolder, read_fixed, read_manifest
from edge_server.strategy import explanations, planning
from edge_server.strategy.groups.device_sums import DeviceSums, held_sums
from edge_server.strategy.groups.feature_sums import HeadRule
from edge_server.strategy.strategy import State, Strategy
from schemas.errors import ConfigError, nearest
from schemas.security.manifest import manifest_path
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.chunks import decode_json
from schemas.values import ModelSpec, Preprocessing

FORGOTTEN = "forgotten"  # key of a version's manifest with the devices that were taken out to make it


@dataclass(frozen=True)
class Removal:
    """The version without a device: its round, its digest, the devices that are left, the tiers' files."""

    device: str
    round: int
    sha256: str
    left: tuple[str, ...]
    files: tuple[Path, ...]


def forget_device(run: Path, device: str) -> Removal:
    """Solve a run's heads without a device, as the next version, and delete all that its sums are in.

    The heads are those of a run in which it took no part. Raises `ConfigError` for a run that is not over,
    that keeps no sums, or in which the device has none.
    """
    folder, config = RunFolder(run), load_config(str(run / "federation.toml"))
    if not folder.has_ended:
        raise ConfigError(f"{run} is not over", remedy="stop the run first")
    strategy, version = config.make_strategy(), _newest(folder)
    manifest = read_manifest(version)
    number = int(manifest.get("round", 0))
    channel_map = decode_json(
        ChannelMap, (version / "channel-map.json").read_bytes(), source=str(version / "channel-map.json")
    )
    state = folder.load_state(number, manifest.get("state_sha256"))
    if manifest.get(FORGOTTEN):
        # A removal that was cut off before its end has left older versions.
        _delete_earlier(folder, number)
    rule, sums = _sums_of(strategy, state, run)
    left = _without(sums, device, run)
    folded = rule.with_heads(left, state.params, channel_map)
    groups = {**state.groups, rule.name: folded.held}
    after = replace(
        state,
        params=folded.params,
        round=number + 1,
        groups=groups,
        observed=rule.observations(folded.held),
        clients={name: about for name, about in state.clients.items() if name != device},
    )
    signer = _signer(folder, config.federation.signing_key, config.federation.name, str(manifest["run"]))
    sha256 = _save(folder, after, channel_map, manifest, device, signer)
    remaining = tuple(each.device for each in left)
    _record(folder, after.round, sha256, device, remaining, after.observed)
    files = _export(folder, after, strategy, channel_map, manifest, config.tiers.levels, signer, sha256)
    _delete_earlier(folder, after.round)
    return Removal(device, after.round, sha256, remaining, files)


def _newest(folder: RunFolder) -> Path:
    versions = sorted(
        (folder.path / "models").glob("round-*"), key=lambda path: int(path.name.partition("-")[2])
    )
    if not versions:
        raise ConfigError(f"{folder.path} holds no model")
    return versions[-1]


def _sums_of(strategy: Strategy, state: State, run: Path) -> tuple[HeadRule, list[DeviceSums]]:
    for rule in strategy.groups:
        if isinstance(rule, HeadRule) and (sums := held_sums(state.groups.get(rule.name, {}))):
            return rule, sums
    raise ConfigError(
        f"{run} keeps no sums of devices, from which a model without one of them could be solved",
        remedy="run one of the recipes ridge and class-means",
    )


def _without(sums: list[DeviceSums], device: str, run: Path) -> list[DeviceSums]:
    names = [each.device for each in sums]
    if names == [COHORT]:
        raise ConfigError(f"{run} holds the masked sum of all devices, and that of none by itself")
    if device not in names:
        raise ConfigError(f"{run} holds no sums of '{device}'{nearest(device, names)}")
    left = [each for each in sums if each.device != device]
    if not left:
        raise ConfigError(f"the heads of {run} are those of '{device}' alone", remedy=f"delete {run}")
    return left


def _signer(folder: RunFolder, stated: Path | None, federation: str, run: str) -> ManifestSigner:
    """The run's signer, where its key is still there."""
    key = stated or folder.path / "signing.key"
    if not key.is_file():
        return ManifestSigner(federation, run)
    from edge_server.security.signing_key import load_or_make_signing_key

    return ManifestSigner(federation, run, load_or_make_signing_key(key))


def _save(
    folder: RunFolder,
    state: State,
    channel_map: ChannelMap,
    manifest: Mapping[str, Any],
    device: str,
    signer: ManifestSigner,
) -> str:
    """Write the new version and its checkpoint; returns the version's digest."""
    about = {key: manifest[key] for key in ("federation", "run", "model", "preprocessing", "tiers")}
    about[FORGOTTEN] = [*manifest.get(FORGOTTEN, ()), device]
    fixed = read_fixed(_newest(folder))
    sha256 = folder.save_model(state.round, state.params, channel_map, about, fixed=fixed)
    signer.model(folder.version(state.round) / "manifest.json", state.round)
    folder.save_checkpoint(state)
    return sha256


def _record(
    folder: RunFolder,
    number: int,
    sha256: str,
    device: str,
    left: tuple[str, ...],
    observed: explanations.Observed,
) -> None:
    """A line of history and a row of the journal for the version, which came of no device's message."""
    record = RoundRecord(
        round=number,
        fraction=1.0,
        local_epochs=0,
        selected=(),
        completed=left,
        uplink_bytes=0,
        downlink_bytes=0,
        duration_s=0.0,
        left_out=(device,),
        costs=observed.get("costs", {}),
        suspects=observed.get("suspects", {}),
    )
    with contextlib.closing(JournalReader(folder.journal)) as reader:
        traffic = reader.traffic()
    with contextlib.closing(Journal(folder.journal)) as journal:
        written = record.model_dump_json()
        journal.write_closed_round(number, sha256, updates=(), over=(), record=written, traffic=traffic)
    folder.add_round(record)


def _export(
    folder: RunFolder,
    state: State,
    strategy: Strategy,
    channel_map: ChannelMap,
    manifest: Mapping[str, Any],
    levels: tuple[float, ...],
    signer: ManifestSigner,
    sha256: str,
) -> tuple[Path, ...]:
    """Write each tier's ONNX file again, signed if the run's key is there."""
    spec = ModelSpec.model_validate(manifest["model"])
    module = build.build_model(spec)
    fixed_state.fill_fixed(module, folder.read_fixed())
    network = GlobalModel(module, spec, channel_map)
    written = []
    for tier, described in sorted(manifest["tiers"].items(), key=lambda item: int(item[0])):
        path, own = folder.onnx(int(tier)), SubModelSpec.model_validate(described)
        provenance = {
            "run_id": str(manifest["run"]),
            "round": str(state.round),
            "tier": str(tier),
            "prune_ratio": str(levels[int(tier) - 1]),
            "parent_sha256": sha256,
        }
        unlink(manifest_path(path))
        network.export(
            path,
            planning.params_of(strategy, state, own, channel_map),
            own,
            preprocessing=Preprocessing.model_validate(manifest["preprocessing"]),
            provenance=provenance,
        )
        signer.export(path, provenance, own)
        written.append(path)
    return tuple(written)


def _delete_earlier(folder: RunFolder, number: int) -> None:
    """Delete versions, checkpoints, archived updates and blobs of earlier rounds, which hold the sums."""
    for path in _held_before(folder, number):
        (shutil.rmtree if path.is_dir() else unlink)(path)


def _held_before(folder: RunFolder, number: int) -> Iterator[Path]:
    kept = {folder.version(number), folder.checkpoint(number)}
    for name in ("models", "checkpoints", "blobs", "unpacked", "spool"):
        held = folder.path / name
        yield from (path for path in (held.iterdir() if held.is_dir() else ()) if path not in kept)
    if folder.frames.exists():
        yield folder.frames
