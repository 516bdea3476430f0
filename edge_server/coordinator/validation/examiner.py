"""Examines uploaded updates, each by itself: here, in threads, or by aggregator processes."""

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

from edge_server.coordinator.aggregators.early_weights import EarlyWeights
from edge_server.coordinator.aggregators.pool import AggregatorPool
from edge_server.coordinator.aggregators.worker import ToExamine
from edge_server.coordinator.run_context import RunContext
from edge_server.coordinator.run_storage import RunStorage
from edge_server.coordinator.validation.update import (
    NOT_ITS_BYTES,
    Examination,
    ExaminedGroups,
    examine_site_update,
    examine_update,
)
from edge_server.rounds.events import CheckUpdate
from edge_server.strategy.strategy import State
from schemas.messages import SiteReceipt, TrainTask, Update

AT_ONCE = max(1, min(4, (os.cpu_count() or 1) // 2))
"""Updates examined concurrently; the other cores are for the rest of the server and the broker."""


class PendingCheck(NamedTuple):
    """An update to be checked, and the task that it answers."""

    command: CheckUpdate
    task: TrainTask

    @property
    def update(self) -> Update:
        """The update itself."""
        return self.command.update

    @property
    def is_plain(self) -> bool:
        """Whether the update is here, and holds the trained numbers of one device."""
        return self.update.receipt is None and self.task.masking is None and self.task.statistics is None


class UpdateExaminer:
    """Verifies the bytes of updates and examines their contents; knows nothing of earlier updates."""

    def __init__(self, context: RunContext, storage: RunStorage, aggregators: AggregatorPool) -> None:
        self._store, self._unpacked, self._aggregators = storage.store, storage.unpacked, aggregators
        self._channel_map, self._rules = context.channel_map, context.strategy.groups
        self._weights = EarlyWeights(context)
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="checking")

    def examine(self, checks: Sequence[PendingCheck], state: State) -> Iterable[Examination]:
        """Verify and examine them: by processes if they are many, else by threads."""
        asked = [ToExamine(check.update, check.task) for check in checks]
        if all(check.is_plain for check in checks) and self._aggregators.takes(asked):
            return self._by_processes(asked, state)
        refs = [check.update.sent for check in checks]
        self._store.keep_sound(ref for ref in refs if ref is not None)
        sound = [self._is_sound(check.update) for check in checks]
        # A single update, the usual case, is not worth another thread.
        map_checks = self._threads.map if len(checks) > 1 else map
        return map_checks(self._examine, checks, sound)

    def examine_here(self, check: PendingCheck) -> Examination:
        """Verify and examine a single update in this thread."""
        return self._examine(check, self._is_sound(check.update))

    def _by_processes(self, asked: Sequence[ToExamine], state: State) -> Iterable[Examination]:
        weighed = [each._replace(weight=self._weights.weight(each.update, state)) for each in asked]
        return map(self._opened, asked, self._aggregators.examine(weighed))

    def _opened(self, asked: ToExamine, found: Examination) -> Examination:
        """The examination by another process, with the groups that it left decompressed."""
        if not self._store.verify(asked.update.blob) or found.reason is not None:
            return found
        path = self._store.path(asked.update.blob.digest)
        return replace(found, groups=ExaminedGroups(path, self._unpacked))

    def _is_sound(self, update: Update) -> bool:
        return update.sent is None or self._store.verify(update.sent)

    def _examine(self, check: PendingCheck, sound: bool) -> Examination:
        if not sound:
            return NOT_ITS_BYTES
        if check.update.receipt is not None:
            return self._examine_receipt(check, check.update.receipt)
        return examine_update(
            check.update,
            self._store.path(check.update.blob.digest),
            check.task,
            self._channel_map,
            self._rules,
            unpacked=self._unpacked,
            segments=check.command.segments,
        )

    def _examine_receipt(self, check: PendingCheck, receipt: SiteReceipt) -> Examination:
        """Examine an update that lies at its site."""
        sent = check.update.sent
        path = None if sent is None else self._store.path(sent.digest)
        return examine_site_update(check.update, receipt, path, check.task, self._channel_map, self._rules)
