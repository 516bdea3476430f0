"""Each device's totals in a run, from the run folder: counted rounds, bytes, refusals, quarantine."""

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path

from pydantic import Field, ValidationError

from edge_server.config.load import load_config
from edge_server.rounds.link_bytes import LinkBytes, link_bytes
from edge_server.rounds.reputation import (
    FORGIVEN,
    ROLLED_BACK,
    ReputationRules,
    quarantined_devices,
    replay_strikes,
)
from edge_server.storage import records, run_files
from edge_server.storage.journal_reader import JournalReader, read_examined, read_strikes
from edge_server.storage.run_folder import RunFolder
from schemas.base import Frozen
from schemas.errors import ConfigError
from schemas.values import DataCard, SkippedFiles


class DeviceTotals(Frozen):
    """One device; `quarantined_until` is the last round of its quarantine, `skipped` are broken files.

    Bytes are those over its own link, up to the last closed round of a running federation.
    """

    device: str
    rounds: int = 0
    downlink_bytes: int = 0
    uplink_bytes: int = 0
    refused: Mapping[str, int] = Field(default_factory=dict)
    quarantined_until: int | None = None
    skipped: SkippedFiles | None = Field(default=None, exclude_if=lambda skipped: skipped is None)


def read_device_totals(path: Path) -> list[DeviceTotals]:
    """All devices by name; refusals are from the summary, or from the journal until there is a summary.

    The summary counts every refused message, the journal examined updates and strikes. Raises `ConfigError`
    unless `path` is a run folder.
    """
    folder = RunFolder(path)
    history = run_files.read_history(path / "history.jsonl")
    counted = Counter(device for record in history for device in record.completed)
    summary = _summary(path / "summary.json")
    refused = {row.device: row.refused for row in summary.devices} if summary else _count_refusals(folder)
    out = _find_quarantined(folder, history)
    met = _met(folder)
    names = {*counted, *refused, *out, *met}
    links = _links(folder, names, summary)
    return [
        DeviceTotals(
            device=name,
            rounds=counted[name],
            downlink_bytes=links[name].received,
            uplink_bytes=links[name].sent,
            refused=dict(sorted(refused.get(name, {}).items())),
            quarantined_until=out.get(name),
            skipped=met.get(name),
        )
        for name in sorted(names)
    ]


def _met(folder: RunFolder) -> dict[str, SkippedFiles | None]:
    """Every device that was connected when a round was planned, with what it has left out of its data."""
    with closing(JournalReader(folder.journal)) as reader:
        return {name: DataCard.model_validate_json(data).skipped for name, *_, data in reader.devices()}


def _summary(path: Path) -> records.Summary | None:
    if not path.exists():
        return None
    try:
        return records.Summary.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise ConfigError(f"not a summary: {run_files.first_validation_error(error)}", place=path) from error
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", place=path) from error


def _links(folder: RunFolder, names: Iterable[str], summary: records.Summary | None) -> dict[str, LinkBytes]:
    if summary is not None:
        known = {row.device: LinkBytes(row.downlink_bytes, row.uplink_bytes) for row in summary.devices}
        return {name: known.get(name, LinkBytes()) for name in names}
    with closing(JournalReader(folder.journal)) as reader:
        traffic = reader.traffic()
    return {name: link_bytes(traffic, name) for name in names}


def _count_refusals(folder: RunFolder) -> dict[str, Counter[str]]:
    examined = read_examined(folder.journal)
    refused = {(row.device, row.round, row.reason) for row in examined if row.reason is not None}
    rows = (row for row in read_strikes(folder.journal) if row.reason not in (ROLLED_BACK, FORGIVEN))
    struck = {(row.device, row.round, row.reason) for row in rows}
    counts: dict[str, Counter[str]] = {}
    for device, _, reason in refused | struck:
        counts.setdefault(device, Counter())[reason] += 1
    return counts


def _find_quarantined(folder: RunFolder, history: tuple[records.RoundRecord, ...]) -> dict[str, int]:
    """Devices in quarantine in the round after the last closed one, with the last round of it."""
    settings = load_config(str(folder.path / "federation.toml")).firewall
    rules = ReputationRules(settings.quarantine_after, settings.quarantine_window, settings.quarantine_rounds)
    strikes = [(row.device, row.round, row.reason) for row in read_strikes(folder.journal)]
    return quarantined_devices(replay_strikes(strikes, rules), len(history) + 1)
