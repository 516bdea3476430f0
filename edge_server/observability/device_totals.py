"""Each device's totals in a run, from the run folder: counted rounds, bytes, refusals, quarantine."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from edge_server.config.load import load_config
from edge_server.rounds import reputation
from edge_server.rounds.link_bytes import LinkBytes, link_bytes
from edge_server.storage import records, run_files
from edge_server.storage.inventory.inventory import Inventory
from edge_server.storage.inventory.records import InventoryDevice
from edge_server.storage.journal_reader import ExaminedUpdate, JournalReader, Strike
from edge_server.storage.run_folder import RunFolder
from edge_server.storage.service_folder import ServiceFolder, default_service_folder
from edge_server.strategy.explanations import DeviceChoice
from schemas.base import Frozen
from schemas.errors import ConfigError, nearest
from schemas.selectors import Where, selectable
from schemas.values import DataCard, SkippedFiles

# One device's rounds in a run, from the run folder: whether it was chosen, why, and the outcome.

Outcome = Literal["counted", "refused", "dropped", "under way", "not chosen"]


class SelectionRow(Frozen):
    """A planning from one device's view; `because` is empty where no reasons are recorded.

    `reason` is that of a refusal; `weight` and `staleness` (rounds) are those of a counted update.
    """

    round: int
    attempt: int | None
    chosen: bool
    because: str = ""
    score: float | None = None
    tier: int | None = None
    ratio: float | None = None
    outcome: Outcome
    reason: str | None = None
    weight: float | None = None
    staleness: int | None = None


def read_selection_history(path: Path, device: str) -> list[SelectionRow]:
    """Every planning that recorded the device, in order; raises `ConfigError` for an unknown device.

    Where plannings record no devices (differential privacy), the rounds that selected the device are listed.
    """
    folder = RunFolder(path)
    history = {record.round: record for record in run_files.read_history(path / "history.jsonl")}
    with closing(JournalReader(folder.journal)) as reader:
        choices = [(found.round, found.attempt, _of(found.devices, device)) for found in reader.choices()]
        fate = _read_fates(reader, history, device, ended=folder.has_ended)
        met = {name for name, *_ in reader.devices()} | {
            name for record in history.values() for name in record.selected
        }
    known = [(number, attempt, choice) for number, attempt, choice in choices if choice is not None]
    if not known and device not in met:
        raise ConfigError(
            f"no device of that name was ever in this run{nearest(device, met)}", key=f"--why {device}"
        )
    rows = [_row(number, attempt, choice, fate) for number, attempt, choice in known]
    if rows:
        return rows
    asked = [record.round for record in history.values() if device in record.selected]
    return [SelectionRow(round=n, attempt=None, chosen=True, **fate.of(n, None)) for n in asked]


def _of(choices: tuple[DeviceChoice, ...], device: str) -> DeviceChoice | None:
    return next((choice for choice in choices if choice.device == device), None)


def _row(number: int, attempt: int, choice: DeviceChoice, fate: "_Fates") -> SelectionRow:
    outcome = fate.of(number, attempt) if choice.chosen else {"outcome": "not chosen"}
    return SelectionRow(round=number, attempt=attempt, **choice.model_dump(exclude={"device"}), **outcome)


@dataclass(frozen=True)
class _Fates:
    """A device's attempts: the round in which each `counted` and its staleness, why it was `refused`."""

    device: str
    counted: Mapping[int, tuple[int, int]]
    refused: Mapping[int, str]
    open: frozenset[int]
    history: Mapping[int, records.RoundRecord]

    def of(self, number: int, attempt: int | None) -> dict[str, Any]:
        """The outcome fields of an attempt begun in round `number`; without an attempt, of that round."""
        if attempt is not None and attempt in self.counted:
            closed, staleness = self.counted[attempt]
            weight = self.history[closed].weights.get(self.device) if closed in self.history else None
            return {"outcome": "counted", "weight": weight, "staleness": staleness}
        if attempt is not None and attempt in self.refused:
            return {"outcome": "refused", "reason": self.refused[attempt]}
        if attempt in self.open:
            return {"outcome": "under way"}
        record = self.history.get(number)
        if attempt is None and record is not None and self.device in record.completed:
            return {"outcome": "counted", "weight": record.weights.get(self.device)}
        rejected = [row.reason for row in record.rejected if row.device == self.device] if record else []
        return {"outcome": "refused", "reason": rejected[0]} if rejected else {"outcome": "dropped"}


def _read_fates(
    reader: JournalReader, history: Mapping[int, records.RoundRecord], device: str, *, ended: bool
) -> _Fates:
    closed = reader.rounds()
    plannings = [row for row in reader.plannings() if device in row.selected and not row.deliver]
    last = plannings[-1] if plannings else None
    waits = last is not None and not ended and last.round > (closed[-1].round if closed else 0)
    counted = {
        update.attempt: (row.round, update.staleness)
        for row in closed
        for update in row.updates
        if update.device == device
    }
    # In a round with secure aggregation only the sum was aggregated; the history lists its devices.
    newest = {row.round: row.attempt for row in plannings}
    for number, attempt in newest.items():
        if number in history and device in history[number].completed:
            counted.setdefault(attempt, (number, 0))
    refused = {
        update.attempt: reason for update, reason, _ in reader.updates() if update.device == device and reason
    }
    tasks = {attempt for name, attempt, _, _ in reader.tasks() if name == device}
    under_way = tasks | ({last.attempt} if waits and last is not None else set())
    return _Fates(device, counted, refused, frozenset(under_way if not ended else ()), history)


@dataclass(frozen=True)
class Lineage:
    """The inventory's devices of a run's `federation`, removed ones included, by name."""

    federation: str
    devices: Mapping[str, InventoryDevice] = field(default_factory=dict)

    def predecessors(self, device: str) -> list[str]:
        """The boards before a device, the last one first."""
        found: list[str] = []
        while True:
            known = self.devices.get(found[-1] if found else device)
            if known is None or not known.replaces or known.replaces in (device, *found):
                return found
            found.append(known.replaces)

    def matches(self, device: "DeviceTotals", where: Where) -> bool:
        """Whether a selector chooses the device, by its labels in the inventory, else by those in the run."""
        known = self.devices.get(device.device)
        own = selectable(device.labels, device=device.device, federation=self.federation)
        return where.matches(own if known is None else known.selectable)


def read_lineage(run: Path, service: Path | None) -> Lineage:
    """The lineage from the inventory of this service folder, or of the default one; empty without any."""
    folder = ServiceFolder(service or default_service_folder())
    federation = load_config(str(run / "federation.toml")).federation.name
    if not folder.inventory.exists():
        return Lineage(federation)
    with closing(Inventory(folder.inventory)) as inventory:
        devices = inventory.devices(federation=federation, removed=True)
    return Lineage(federation, {device.device: device for device in devices})


def read_whole_history(run: Path, device: str, predecessors: Sequence[str]) -> list[tuple[str, SelectionRow]]:
    """The rounds of a device and of the boards before it, each with its name, in the order of the rounds.

    Raises `ConfigError` if the run knows none of them.
    """
    found: list[tuple[str, SelectionRow]] = []
    missing: list[ConfigError] = []
    names = (device, *predecessors)
    for name in names:
        try:
            found += [(name, row) for row in read_selection_history(run, name)]
        except ConfigError as error:
            missing.append(error)
    if len(missing) == len(names):
        raise missing[0]
    return sorted(found, key=lambda entry: (entry[1].round, entry[1].attempt or 0))


class DeviceTotals(Frozen):
    """One device; `quarantined_until` is the last round of its quarantine, `skipped` are broken files.

    Bytes are those over its own link, up to the last closed round of a running federation. `labels` are those
    of the summary.
    """

    device: str
    rounds: int = 0
    downlink_bytes: int = 0
    uplink_bytes: int = 0
    refused: Mapping[str, int] = Field(default_factory=dict)
    quarantined_until: int | None = None
    skipped: SkippedFiles | None = Field(default=None, exclude_if=lambda skipped: skipped is None)
    labels: Mapping[str, str] = Field(default_factory=dict, exclude_if=lambda labels: not labels)


def read_device_totals(path: Path) -> list[DeviceTotals]:
    """All devices by name; refusals are from the summary, or from the journal until there is a summary.

    The summary counts every refused message, the journal examined updates and strikes. Raises `ConfigError`
    unless `path` is a run folder.
    """
    folder = RunFolder(path)
    history = run_files.read_history(path / "history.jsonl")
    counted = Counter(device for record in history for device in record.completed)
    summary = run_files.read_summary(path / "summary.json") if folder.has_ended else None
    with closing(JournalReader(folder.journal)) as reader:
        # Every device that was connected when a round was planned, with what it has left out of its data.
        met = {name: DataCard.model_validate_json(data).skipped for name, *_, data in reader.devices()}
        traffic, strikes = reader.traffic(), reader.strikes()
        examined = () if summary else reader.examined_updates()
    out = _find_quarantined(path, strikes, len(history) + 1)
    if summary is not None:
        refused = {row.device: row.refused for row in summary.devices}
        known = {row.device: LinkBytes(row.downlink_bytes, row.uplink_bytes) for row in summary.devices}
        labels = {row.device: row.labels for row in summary.devices}
    else:
        refused, known, labels = _count_refusals(examined, strikes), {}, {}
    names = {*counted, *refused, *out, *met}
    links = {
        name: known.get(name) or (LinkBytes() if summary else link_bytes(traffic, name)) for name in names
    }
    return [
        DeviceTotals(
            device=name,
            rounds=counted[name],
            downlink_bytes=links[name].received,
            uplink_bytes=links[name].sent,
            refused=dict(sorted(refused.get(name, {}).items())),
            quarantined_until=out.get(name),
            skipped=met.get(name),
            labels=labels.get(name, {}),
        )
        for name in sorted(names)
    ]


def _count_refusals(
    examined: Iterable[ExaminedUpdate], strikes: Iterable[Strike]
) -> dict[str, Mapping[str, int]]:
    refused = {(row.device, row.round, row.reason) for row in examined if row.reason is not None}
    forgiven = (reputation.ROLLED_BACK, reputation.FORGIVEN)
    struck = {(row.device, row.round, row.reason) for row in strikes if row.reason not in forgiven}
    counts: dict[str, Counter[str]] = {}
    for device, _, reason in refused | struck:
        counts.setdefault(device, Counter())[reason] += 1
    return {**counts}


def _find_quarantined(path: Path, strikes: Iterable[Strike], round_number: int) -> dict[str, int]:
    """Devices in quarantine in a round, with the last round of it."""
    settings = load_config(str(path / "federation.toml")).firewall
    rules = reputation.ReputationRules(
        settings.quarantine_after, settings.quarantine_window, settings.quarantine_rounds
    )
    rows = [(row.device, row.round, row.reason) for row in strikes]
    return reputation.quarantined_devices(reputation.replay_strikes(rows, rules), round_number)
