"""Computing every aggregate of a run again, from its journal and its update archive.

A round agrees if the strategy, given the state before the round and the archived updates, computes the model
whose sha256 the journal has: equal to the last bit.
"""

import contextlib
import hashlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from edge_server.config.config import Config
from edge_server.config.load import load_config
from edge_server.coordinator.round_record import data_statistics
from edge_server.coordinator.validation import contents, site_sums
from edge_server.coordinator.validation.update import accepted_update, known_clients
from edge_server.storage.journal import AggregatedUpdate
from edge_server.storage.journal_reader import REMEDY, ClosedRound, JournalReader, RecordedPlanning
from edge_server.storage.records import DataStatistics, RoundRecord
from edge_server.storage.run_folder import RunFolder
from edge_server.storage.update_archive import BEFORE, MODEL, UpdateArchive, sum_name
from edge_server.strategy.aggregation.partial_sums import PartialSum
from edge_server.strategy.aggregation.updates import ClientUpdate, SummedArrays
from edge_server.strategy.closing import close_round, load_state, whole_weights
from edge_server.strategy.data_statistics import STATISTICS
from edge_server.strategy.strategy import State, Strategy
from schemas.base import site_of
from schemas.errors import ConfigError, PeerError
from schemas.messages import Update
from schemas.submodel import ChannelMap
from schemas.tensors.files import FlatGroups, digest_of_tensors

MODEL_GROUP = "model"


class ReplayVerdict(StrEnum):
    """The result of computing a round again."""

    AGREES = "agrees"
    DIFFERS = "differs"
    DAMAGED = "damaged"
    NOT_KEPT = "not kept"


@dataclass(frozen=True)
class Replayed:
    """A round that was computed again; `sha256` is the new digest, None if there is none."""

    round: int
    verdict: ReplayVerdict
    updates: int
    journal_sha256: str
    sha256: str | None = None
    detail: str = ""


def replay(run: Path) -> Iterator[Replayed]:
    """Compute the rounds of a run folder again, one by one; raises `ConfigError` if `run` is none."""
    folder = RunFolder(run)
    config = _config(run)
    with contextlib.closing(JournalReader(folder.journal)) as reader:
        rounds = reader.rounds()
        updates = {(u.device, u.attempt, u.blob.digest): (u, ratio) for u, _, ratio in reader.updates()}
        plannings, begun_with = reader.plannings(), reader.begun_with()
    if not rounds:
        raise ConfigError(f"{run} has no closed round yet")
    strategy = config.make_strategy()
    asked = _recorded_statistics(folder) if strategy.statistics else {}
    archive, sites = UpdateArchive(folder.spool, 0), config.federation.sites
    again = _Replay(strategy, _channel_map(run), archive, updates, asked, sites)
    for closed in rounds:
        yield again.round(closed, plannings, begun_with.get(closed.round - 1))


@dataclass(frozen=True)
class _Replay:
    strategy: Strategy
    channel_map: ChannelMap
    spool: UpdateArchive
    updates: dict[tuple[str, int, str], tuple[Update, float | None]]
    statistics: Mapping[int, DataStatistics]
    sites: tuple[str, ...]

    def round(
        self, closed: ClosedRound, plannings: list[RecordedPlanning], began_with: str | None
    ) -> Replayed:
        """Compute one round again; the model that it `began_with` has this sha256, where that is known."""
        number, sha256, made_of = closed.round, closed.state_sha256, closed.updates
        folder = self.spool.folder(number)
        if not folder.is_dir():
            return Replayed(number, ReplayVerdict.NOT_KEPT, len(made_of), sha256)
        if unread := self._unread(made_of):
            return Replayed(number, ReplayVerdict.DAMAGED, len(made_of), sha256, detail=unread)
        damaged = [update.device for update in made_of if not self._is_sound(update, folder)]
        if damaged:
            detail = f"the update of {', '.join(damaged)} is not the one that was accepted"
            return Replayed(number, ReplayVerdict.DAMAGED, len(made_of), sha256, detail=detail)
        try:
            kept = load_state(folder / BEFORE, folder / MODEL, began_with)
            before = _with_clients(kept, number, plannings)
        except ConfigError as error:
            return Replayed(number, ReplayVerdict.DAMAGED, len(made_of), sha256, detail=str(error))
        try:
            after = self._close_round(before, made_of, folder)
        except (PeerError, OSError) as error:
            return Replayed(number, ReplayVerdict.DAMAGED, len(made_of), sha256, detail=str(error))
        found = digest_of_tensors(FlatGroups({"model": after.params}))
        same = found == sha256 and self._same_statistics(number, after)
        verdict = ReplayVerdict.AGREES if same else ReplayVerdict.DIFFERS
        return Replayed(number, verdict, len(made_of), sha256, found)

    def _close_round(self, before: State, made_of: Sequence[AggregatedUpdate], folder: Path) -> State:
        """The state after the round; raises `PeerError` or `OSError` if a site's sum cannot be read."""
        with tempfile.TemporaryDirectory(prefix="edge-replay-") as made:
            unpacked = contents.UnpackedCache(Path(made))
            sent = [self._update(update, folder, unpacked) for update in made_of]
            sums = self._sums(before, sent, folder, unpacked)
            known = known_clients(before)
            return close_round(self.strategy, before, sent, self.channel_map, clients=known, parts=sums)

    def _sums(
        self, before: State, sent: Sequence[ClientUpdate], folder: Path, unpacked: contents.UnpackedCache
    ) -> list[PartialSum]:
        """The sums of sites, with the weights that their members have."""
        weights = whole_weights(self.strategy, before, sent) or {}
        members: dict[str, dict[str, int]] = {}
        for update in sent:
            if isinstance(update.groups[MODEL_GROUP], SummedArrays):
                site = members.setdefault(site_of(update.client, self.sites), {})
                site[update.client] = weights[update.client]
        return [
            PartialSum(of_site, site_sums.open_sum(folder / sum_name(site), unpacked, self.channel_map))
            for site, of_site in members.items()
        ]

    def _is_sound(self, used: AggregatedUpdate, folder: Path) -> bool:
        """Whether what was sent of an update is as it was accepted."""
        update, _ = self.updates[used.device, used.attempt, used.digest]
        return (
            update.sent_blob is None or _digest(folder / update.sent_blob.digest) == update.sent_blob.digest
        )

    def _same_statistics(self, number: int, after: State) -> bool:
        """Whether a round of statistics, which changes no model, finds what the history says."""
        recorded = self.statistics.get(number)
        if recorded is None:
            return not self.strategy.statistics
        names = recorded.outputs or tuple(recorded.labels)
        return data_statistics(after.observed.get(STATISTICS), names, recorded.columns) == recorded

    def _unread(self, made_of: tuple[AggregatedUpdate, ...]) -> str:
        """Which row of the journal cannot be used; empty if all can."""
        if not made_of:
            return "the journal's row of this round does not say which updates it was made of"
        lost = [u.device for u in made_of if (u.device, u.attempt, u.digest) not in self.updates]
        return f"the journal's row of the update of {', '.join(lost)} cannot be read" if lost else ""

    def _update(self, used: AggregatedUpdate, folder: Path, unpacked: contents.UnpackedCache) -> ClientUpdate:
        update, ratio = self.updates[used.device, used.attempt, used.digest]
        channels, staleness = self.channel_map, used.staleness
        return accepted_update(
            update, folder.joinpath, channels, unpacked=unpacked, staleness=staleness, ratio=ratio
        )


def _recorded_statistics(folder: RunFolder) -> dict[int, DataStatistics]:
    records = [RoundRecord.model_validate_json(line) for line in folder.history.read_text().splitlines()]
    return {record.round: record.statistics for record in records if record.statistics is not None}


def _with_clients(state: State, number: int, plannings: list[RecordedPlanning]) -> State:
    """The state with the clients of the round's plannings."""
    rounds = [planned for planned in plannings if planned.round == number and not planned.deliver]
    clients = {name: about for planned in rounds for name, about in planned.clients.items()}
    return replace(state, clients={**state.clients, **clients})


def _digest(path: Path) -> str | None:
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _config(run: Path) -> Config:
    path = run / "federation.toml"
    if not path.is_file():
        raise ConfigError(f"{run} is not a run folder: it has no federation.toml")
    return load_config(str(path))


def _channel_map(run: Path) -> ChannelMap:
    """All versions of the model have the same channels."""
    paths = sorted((run / "models").glob("*/channel-map.json"))
    if not paths:
        raise ConfigError(f"{run} holds no model")
    for path in reversed(paths):
        with contextlib.suppress(ValueError):
            return ChannelMap.model_validate_json(path.read_bytes())
    raise ConfigError(f"{paths[-1]}: no channel map that can be read", remedy=REMEDY)
