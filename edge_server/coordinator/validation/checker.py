"""Checks uploaded updates against earlier ones, and writes the verdicts to disk."""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

from edge_server.coordinator.aggregators import pool, worker
from edge_server.coordinator.model_state import ModelState
from edge_server.coordinator.run_context import RunContext
from edge_server.coordinator.run_storage import RunStorage
from edge_server.coordinator.validation import consistency, harm_review
from edge_server.coordinator.validation.norms import MIN_UPDATES, Outliers
from edge_server.coordinator.validation.update import (
    NOT_ITS_BYTES,
    Examination,
    ExaminedGroups,
    examine_site_update,
    examine_update,
)
from edge_server.rounds.events import CheckUpdate, UpdateChecked
from edge_server.storage.journal import Journal
from edge_server.storage.recovery import Resumption
from edge_server.strategy.aggregation.updates import ClientUpdate, is_statistic
from edge_server.strategy.planning import params_of
from edge_server.strategy.strategy import State
from schemas.errors import PeerError, Reason
from schemas.messages import SiteReceipt, TrainTask, Update

AT_ONCE = max(1, min(4, (os.cpu_count() or 1) // 2))
"""Updates examined concurrently; the other cores are for the rest of the server and the broker."""
MAX_NUMBERS = 4_000_000
"""Numbers of the largest model whose updates are added early: each process then needs 64 MB for their sum."""
EARLY_TRANSFORMS = frozenset({"fill-with-global"})
"""Transforms that need nothing that is known only when the round is closed."""


class PendingCheck(NamedTuple):
    """An update to be checked, and the task that it answers."""

    command: CheckUpdate
    task: TrainTask

    @property
    def update(self) -> Update:
        return self.command.update

    @property
    def is_plain(self) -> bool:
        """Whether the update is here, and holds the trained numbers of one device."""
        return self.update.receipt is None and self.task.masking is None and self.task.statistics is None


class EarlyWeights:
    """The weights that updates will likely have when their round is closed.

    Updates are not added early if the server itself looks at their numbers: at variances of normalisation, or
    to test them (the canary).
    """

    def __init__(self, context: RunContext) -> None:
        spec, parameters = context.config.strategy, context.channel_map.parameters
        self._weighting = context.strategy.weighting
        self._may = (
            context.strategy.summed
            and context.config.firewall.canary is None
            and {transform.name for transform in spec.transforms} <= EARLY_TRANSFORMS
            and not any(is_statistic(name) for name in parameters)
            and sum(math.prod(layout.shape) for layout in parameters.values()) <= MAX_NUMBERS
        )

    def weight(self, update: Update, state: State) -> int | None:
        """The whole weight of an update; None if it is not to be added early."""
        examples = update.metrics.examples
        if not self._may or not state.exact or not examples:
            return None
        counts = self._weighting.counts([ClientUpdate(update.device, update.spec, {}, examples)])
        return None if counts is None else counts[0]


class UpdateExaminer:
    """Verifies the bytes of updates and examines their contents; knows nothing of earlier updates."""

    def __init__(self, context: RunContext, storage: RunStorage, aggregators: pool.AggregatorPool) -> None:
        self._store, self._unpacked, self._aggregators = storage.store, storage.unpacked, aggregators
        self._channel_map, self._rules = context.channel_map, context.strategy.groups
        self._weights = EarlyWeights(context)
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="checking")

    def examine(self, checks: Sequence[PendingCheck], state: State) -> Iterable[Examination]:
        """Verify and examine them: by processes if they are many, else by threads."""
        asked = [worker.ToExamine(check.update, check.task) for check in checks]
        if all(check.is_plain for check in checks) and self._aggregators.takes(asked):
            return self._by_processes(asked, state)
        refs = [check.update.sent_blob for check in checks]
        self._store.keep_sound(ref for ref in refs if ref is not None)
        sound = [self._is_sound(check.update) for check in checks]
        # A single update, the usual case, is not worth another thread.
        map_checks = self._threads.map if len(checks) > 1 else map
        return map_checks(self._examine, checks, sound)

    def examine_here(self, check: PendingCheck) -> Examination:
        """Verify and examine a single update in this thread."""
        return self._examine(check, self._is_sound(check.update))

    def _by_processes(self, asked: Sequence[worker.ToExamine], state: State) -> Iterable[Examination]:
        weighed = [each._replace(weight=self._weights.weight(each.update, state)) for each in asked]
        return map(self._with_groups, asked, self._aggregators.examine(weighed))

    def _with_groups(self, asked: worker.ToExamine, found: Examination) -> Examination:
        """The examination by another process, with the groups that it left decompressed."""
        if not self._store.verify(asked.update.blob) or found.reason is not None:
            return found
        path = self._store.blob_path(asked.update.blob.digest)
        return replace(found, groups=ExaminedGroups(path, self._unpacked))

    def _is_sound(self, update: Update) -> bool:
        return update.sent_blob is None or self._store.verify(update.sent_blob)

    def _examine(self, check: PendingCheck, sound: bool) -> Examination:
        if not sound:
            return NOT_ITS_BYTES
        if check.update.receipt is not None:
            return self._examine_receipt(check, check.update.receipt)
        return examine_update(
            check.update,
            self._store.blob_path(check.update.blob.digest),
            check.task,
            self._channel_map,
            self._rules,
            unpacked=self._unpacked,
            segments=check.command.segments,
        )

    def _examine_receipt(self, check: PendingCheck, receipt: SiteReceipt) -> Examination:
        """Examine an update that lies at its site."""
        sent = check.update.sent_blob
        path = None if sent is None else self._store.blob_path(sent.digest)
        return examine_site_update(check.update, receipt, path, check.task, self._channel_map, self._rules)


class UpdateChecker:
    """Judges the examined updates of one run and writes the verdicts to the journal.

    `ratios` are the ratios of the tasks of earlier updates, by device and attempt.
    """

    def __init__(
        self,
        context: RunContext,
        journal: Journal,
        examiner: UpdateExaminer,
        history: harm_review.UpdateHistory,
        ratios: Mapping[tuple[str, int], float],
    ) -> None:
        self._context, self._journal, self._examiner = context, journal, examiner
        self.history, self._ratios = history, dict(ratios)

    def check(self, command: CheckUpdate, task: TrainTask, state: State) -> UpdateChecked:
        """Verify and examine an update; it is on disk and in the journal when this returns."""
        check = PendingCheck(command, task)
        return self._record(check, self._examiner.examine_here(check), state)

    def check_all(self, checks: Sequence[tuple[CheckUpdate, TrainTask]], state: State) -> list[UpdateChecked]:
        """Check several updates, waiting for the disk once.

        They are examined concurrently, then compared with earlier updates in order.
        """
        pending = [PendingCheck(*check) for check in checks]
        with self._journal.together():
            found = self._examiner.examine(pending, state)
            return [
                self._record(check, examination, state)
                for check, examination in zip(pending, found, strict=True)
            ]

    def _record(self, check: PendingCheck, found: Examination, state: State) -> UpdateChecked:
        """Compare an examined update with earlier ones, and write the verdict to the journal."""
        update, ratio = check.update, check.task.ratio
        norms = self._norms(update, found)
        reason, detail = self._judge(check, found, norms, state)
        self.history.record(update, norms, reason)
        # A refused blob is kept until the next planning: another device may have sent the same bytes.
        if reason is None:
            self._ratios[update.device, update.attempt] = ratio
        self._journal.write_examined(update, reason=reason, ratio=ratio, norms=norms)
        return UpdateChecked(check.command.device, update.blob.digest, reason, detail)

    def _norms(self, update: Update, found: Examination) -> Mapping[str, float]:
        """The norms of an update, measured here and at its site."""
        norms = self.history.measure(found.sizes)
        return norms if update.receipt is None else {**update.receipt.norms, **norms}

    def _judge(
        self, check: PendingCheck, found: Examination, norms: Mapping[str, float], state: State
    ) -> tuple[Reason | None, str]:
        """Reason and detail of a refusal, of the examination or by comparison with earlier updates."""
        update, receipt = check.update, check.update.receipt
        if found.reason is not None or not (found.sizes or receipt is not None):
            return found.reason, found.detail
        again = {rule.name for rule in self._context.strategy.groups if rule.repeats}
        new = {group: sizes for group, sizes in found.sizes.items() if group not in again}
        moved = consistency.is_moved(new) or (receipt is not None and receipt.moved)
        try:
            params = params_of(self._context.strategy, state, check.task.spec, self._context.channel_map)
            self.history.check(
                update, found.groups, norms, moved=moved, params=params, round_number=state.round
            )
        except PeerError as error:
            return Reason(error.reason), str(error)
        return None, found.detail

    def find_outliers(self, updates: Mapping[str, Update]) -> Outliers:
        """The accepted updates of a round that differ from all others; no suspect lies at a site."""
        found = self.history.find_outliers(
            {name: self._journal.norms(update) for name, update in updates.items()}
        )
        tried = {name: words for name, words in found.suspects.items() if updates[name].receipt is None}
        refused = {
            name: words for name, words in {**found.refused, **found.suspects}.items() if name not in tried
        }
        for name in refused:
            self._ratios.pop((name, updates[name].attempt), None)
        return Outliers(refused, tried)

    def take_ratio(self, update: Update) -> float | None:
        """Remove and return the ratio of the update's task; None if it is not known."""
        return self._ratios.pop((update.device, update.attempt), None)


def make_checker(
    model: ModelState, storage: RunStorage, resume: Resumption, aggregators: pool.AggregatorPool
) -> UpdateChecker:
    """The checker of a run, with the examined updates of a resumed run."""
    context = model.context
    firewall = context.config.firewall
    if context.privacy.on:
        # Every update is clipped, and noise changes their usual size in every round.
        firewall = firewall.model_copy(update={"norm_bound": False})
    canary = context.testing.canary(model.network)
    fleet, rules = context.config.clients, context.strategy.groups
    # A buffered round may be a single update.
    many = fleet.mode == "rounds" and fleet.num_clients >= MIN_UPDATES
    compared = many and harm_review.compares(context)
    history = harm_review.UpdateHistory(
        firewall, context.channel_map, canary, rules, parts=context.parts, compared=compared
    )
    history.restore(resume.examined)
    examiner = UpdateExaminer(context, storage, aggregators)
    return UpdateChecker(context, storage.journal, examiner, history, resume.ratios)
