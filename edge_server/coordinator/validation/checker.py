"""Checks uploaded updates, and writes updates and verdicts to disk."""

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from edge_client.storage.blob_store import BlobStore
from edge_server.coordinator.aggregators.early_weights import EarlyWeights
from edge_server.coordinator.aggregators.pool import AggregatorPool
from edge_server.coordinator.aggregators.worker import ToExamine
from edge_server.coordinator.model_state import ModelState
from edge_server.coordinator.run_storage import RunStorage
from edge_server.coordinator.validation.magnitudes import is_moved
from edge_server.coordinator.validation.unpacked_cache import UnpackedCache
from edge_server.coordinator.validation.update import (
    NOT_ITS_BYTES,
    Examination,
    ExaminedGroups,
    examine_site_update,
    examine_update,
)
from edge_server.coordinator.validation.update_history import UpdateHistory
from edge_server.rounds.events import CheckUpdate, UpdateChecked
from edge_server.storage.journal import Journal
from edge_server.storage.recovery import Resumption
from edge_server.strategy.groups.rule import GroupRule, own_params
from edge_server.strategy.strategy import State
from schemas.errors import PeerError
from schemas.messages import TrainTask, Update
from schemas.submodel import ChannelMap
from schemas.values import Reason

AT_ONCE = max(1, min(4, (os.cpu_count() or 1) // 2))
"""Updates examined concurrently; the other cores are for the rest of the server and the broker."""


class UpdateChecker:
    """Examines the updates of one run and writes the verdicts to the journal.

    `rules` are those of the parameter groups that devices may send in addition to the model. `ratios` are the
    ratios of the tasks of earlier updates, by device and attempt.
    """

    def __init__(
        self,
        store: BlobStore,
        unpacked: UnpackedCache,
        journal: Journal,
        channel_map: ChannelMap,
        rules: Sequence[GroupRule],
        history: UpdateHistory,
        ratios: Mapping[tuple[str, int], float],
        aggregators: AggregatorPool,
        weights: EarlyWeights,
    ) -> None:
        self._store, self._unpacked, self._journal = store, unpacked, journal
        self._channel_map, self._rules = channel_map, rules
        self.history, self._ratios, self._aggregators = history, dict(ratios), aggregators
        self._weights = weights
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="checking")

    def check(self, command: CheckUpdate, task: TrainTask, state: State) -> UpdateChecked:
        """Verify and examine an update; it is on disk and in the journal when this returns."""
        sound = self._is_sound(command.update)
        return self._judge(command, task, self._examine((command, task), sound), state)

    def check_all(self, checks: Sequence[tuple[CheckUpdate, TrainTask]], state: State) -> list[UpdateChecked]:
        """Check several updates, waiting for the disk once.

        They are examined concurrently, then compared with earlier updates in order.
        """
        with self._journal.together():
            return [
                self._judge(command, task, examination, state)
                for (command, task), examination in zip(checks, self._examine_all(checks, state), strict=True)
            ]

    def _examine_all(
        self, checks: Sequence[tuple[CheckUpdate, TrainTask]], state: State
    ) -> Iterable[Examination]:
        """Verify and examine them: by processes if they are many, else by threads."""
        asked = [ToExamine(command.update, task) for command, task in checks]
        here = all(command.update.receipt is None for command, _ in checks)
        plain = here and all(task.masking is None and task.statistics is None for _, task in checks)
        if plain and self._aggregators.takes(asked):
            weighed = [each._replace(weight=self._weights.weight(each.update, state)) for each in asked]
            return map(self._opened, asked, self._aggregators.examine(weighed))
        refs = [command.update.sent for command, _ in checks]
        self._store.keep_sound(ref for ref in refs if ref is not None)
        sound = [self._is_sound(command.update) for command, _ in checks]
        # A single update, the usual case, is not worth another thread.
        map_checks = self._pool.map if len(checks) > 1 else map
        return map_checks(self._examine, checks, sound)

    def _opened(self, asked: ToExamine, found: Examination) -> Examination:
        """The examination by another process, with the groups that it left decompressed."""
        if not self._store.verify(asked.update.blob) or found.reason is not None:
            return found
        path = self._store.path(asked.update.blob.digest)
        return replace(found, groups=ExaminedGroups(path, self._unpacked))

    def _is_sound(self, update: Update) -> bool:
        return update.sent is None or self._store.verify(update.sent)

    def _examine(self, check: tuple[CheckUpdate, TrainTask], sound: bool) -> Examination:
        command, task = check
        if not sound:
            return NOT_ITS_BYTES
        update = command.update
        if update.receipt is not None:
            path = None if update.sent is None else self._store.path(update.sent.digest)
            return examine_site_update(update, update.receipt, path, task, self._channel_map, self._rules)
        return examine_update(
            update,
            self._store.path(update.blob.digest),
            task,
            self._channel_map,
            self._rules,
            unpacked=self._unpacked,
            segments=command.segments,
        )

    def _judge(
        self, command: CheckUpdate, task: TrainTask, found: Examination, state: State
    ) -> UpdateChecked:
        update, norms, moved = command.update, self.history.measure(found.sizes), is_moved(found.sizes)
        if update.receipt is not None:
            norms, moved = {**update.receipt.norms, **norms}, moved or update.receipt.moved
        reason, detail = found.reason, found.detail
        if reason is None and (found.sizes or update.receipt is not None):
            try:
                params = own_params(self._rules, state.params, state.groups, task.spec, self._channel_map)
                self.history.check(
                    update, found.groups, norms, moved=moved, params=params, round_number=state.round
                )
            except PeerError as error:
                reason, detail = Reason(error.reason), str(error)
        self.history.record(update, norms, reason)
        # A refused blob is kept until the next planning: another device may have sent the same bytes.
        if reason is None:
            self._ratios[update.device, update.attempt] = task.ratio
        self._journal.examined(update, reason=reason, ratio=task.ratio, norms=norms)
        return UpdateChecked(command.device, update.blob.digest, reason, detail)

    def find_outliers(self, updates: Mapping[str, Update]) -> dict[str, str]:
        """The accepted updates of a round that differ from all others, by device, with the reason."""
        found = self.history.find_outliers(
            {name: self._journal.norms(update) for name, update in updates.items()}
        )
        for name in found:
            self._ratios.pop((name, updates[name].attempt), None)
        return found

    def take_ratio(self, update: Update) -> float | None:
        """Remove and return the ratio of the update's task; None if it is not known."""
        return self._ratios.pop((update.device, update.attempt), None)


def make_checker(
    model: ModelState, storage: RunStorage, resume: Resumption, aggregators: AggregatorPool
) -> UpdateChecker:
    """The checker of a run, with the examined updates of a resumed run."""
    context = model.context
    firewall = context.config.firewall
    if context.privacy.on:
        # Every update is clipped, and noise changes their usual size in every round.
        firewall = firewall.model_copy(update={"norm_bound": False})
    rules = context.strategy.groups
    history = UpdateHistory(firewall, context.channel_map, context.testing.canary(model.network), rules)
    history.restore(resume.examined)
    files = (storage.store, storage.unpacked, storage.journal)
    return UpdateChecker(
        *files, context.channel_map, rules, history, resume.ratios, aggregators, EarlyWeights(context)
    )
