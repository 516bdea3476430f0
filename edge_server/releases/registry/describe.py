"""Describe a run's models, read from its folder, as a version."""

import hashlib
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from statistics import fmean

from pydantic import ValidationError

from edge_client.security.trusted_key import check_model, read_trusted_key
from edge_server.releases.registry.registry import TierModel, Version
from edge_server.storage.journal_reader import JournalReader
from edge_server.storage.records import DeviceRecord, RoundRecord, StartedFrom, Summary
from edge_server.storage.run_files import first_validation_error, read_history, read_summary
from edge_server.storage.run_folder import RunFolder, run_title
from schemas.base import fields_of
from schemas.errors import ConfigError
from schemas.security.manifest import Manifest, decode_manifest, manifest_path

KEPT_PARENTS = 3
OF_SUMMARY = (
    *("federation", "run", "rounds", "outcome", "recipe", "model", "parameters", "started_from"),
    *("test_accuracy", "test_metrics", "epsilon", "delta"),
)
"""Fields of a version that are those of its run's summary."""
Signed = tuple[Manifest, str]  # A file's manifest, and the fingerprint of the key that signed it


def describe_run(run: Path, *, name: str | None = None) -> Version:
    """A run's models as a version; raises `ConfigError` for folders without a finished run."""
    summary, history = read_summary(run / "summary.json"), read_history(run / "history.jsonl")
    paths = sorted((run / "onnx").glob("tier-*.onnx"), key=tier_of_file)
    if not paths:
        raise ConfigError(f"{run} has no ONNX files: a run writes them when it is over")
    signed = {tier_of_file(path): _manifest(path) for path in paths}
    last = history[-1] if history else None
    described = [_tier(path, signed[tier_of_file(path)], summary, last) for path in paths]
    states, device_tiers = _read_journal(run)
    fields = {
        **fields_of(summary, *OF_SUMMARY),
        "version": name or run_title(run, summary.run),
        "round": last.round if last else 0,
        "state_sha256": states[0] if states else None,
        "parents": _parents(states, summary.started_from),
        "key": _key(signed.values()),
        "created_at": time.time(),
        "tiers": described,
        "device_tiers": device_tiers or {device.device: device.tier for device in summary.devices},
    }
    try:
        return Version.model_validate(fields)
    except ValidationError as error:
        raise ConfigError(first_validation_error(error), place=run) from error


def _parents(states: list[str], first: StartedFrom | None) -> list[str]:
    """The digests of the last models before the run's final one, and of the model it started from."""
    nearest = states[1 : 1 + KEPT_PARENTS]
    return nearest if first is None else list(dict.fromkeys([*nearest, first.state_sha256]))


def tier_of_file(path: Path) -> int:
    try:
        return int(path.stem.removeprefix("tier-"))
    except ValueError:
        raise ConfigError(f"{path} is not the file of a tier, such as tier-1.onnx") from None


def _manifest(path: Path) -> Signed | None:
    """A tier's manifest, if it is signed; raises `ConfigError` if the manifest is of another file."""
    public = path.parent.parent / "signing.pub"
    if not manifest_path(path).exists() or not public.exists():
        return None
    manifest = check_model(path, path.read_bytes(), read_trusted_key(public), exported_by="server")
    return manifest, decode_manifest(manifest_path(path).read_bytes()).key


def _key(signed: Iterable[Signed | None]) -> str | None:
    """The key that signed all files, if there is one."""
    keys = {None if entry is None else entry[1] for entry in signed}
    return keys.pop() if len(keys) == 1 else None


def _read_journal(run: Path) -> tuple[list[str], dict[str, int]]:
    """The digests of the global model, the last round's first, and each device's last tier."""
    journal = RunFolder(run).journal
    if not journal.exists():
        return [], {}
    with closing(JournalReader(journal)) as reader:
        return list(dict.fromkeys(reversed(reader.begun_with().values()))), reader.tiers()


def _tier(path: Path, signed: Signed | None, summary: Summary, last: RoundRecord | None) -> TierModel:
    number, data = tier_of_file(path), path.read_bytes()
    manifest = signed[0] if signed else None
    devices = [
        device for device in summary.devices if device.tier == number and device.onnx_bytes is not None
    ]
    ratio = float(manifest.ratio) if manifest is not None and manifest.ratio else _ratio(path)
    return TierModel(
        tier=number,
        ratio=ratio,
        sha256=hashlib.sha256(data).hexdigest(),
        bytes=len(data),
        parent_sha256=manifest.parent_sha256 if manifest else None,
        spec_sha256=manifest.spec_sha256 if manifest else None,
        parameters=devices[0].parameters if devices else None,
        macs=devices[0].macs if devices else None,
        test_accuracy=last.tier_accuracy.get(number) if last else None,
        test_metrics=last.tier_metrics.get(number, {}) if last else {},
        devices=len(devices),
        devices_serving=sum(device.serves_new is True for device in devices) if devices else None,
        device_accuracy=_mean(devices, "onnx_accuracy"),
        device_metrics=_mean_metrics(devices),
        device_latency_ms=_mean(devices, "latency_ms"),
    )


def _ratio(path: Path) -> float:
    """The pruning ratio in the file's own metadata, for files without a manifest."""
    from edge_client.inference.onnx_model import load_model

    return float(load_model(path, threads=1).provenance.get("prune_ratio", "0"))


def _mean(devices: list[DeviceRecord], field: str) -> float | None:
    values: list[float] = [value for device in devices if (value := getattr(device, field)) is not None]
    return fmean(values) if values else None


def _mean_metrics(devices: list[DeviceRecord]) -> dict[str, float]:
    """The mean of each figure over the devices that have it, the leading one first."""
    names = dict.fromkeys(name for device in devices for name in device.metrics)
    return {name: fmean(d.metrics[name] for d in devices if name in d.metrics) for name in names}
