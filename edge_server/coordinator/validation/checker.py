"""Whether the updates that devices send may count: what is said of one is on disk, and so is the update."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from edge_client.storage.blob_store import BlobStore
from edge_server.coordinator.model_state import ModelState
from edge_server.coordinator.run_storage import RunStorage
from edge_server.coordinator.validation.unpacked_cache import UnpackedCache
from edge_server.coordinator.validation.update import NOT_ITS_BYTES, Examination, examined
from edge_server.coordinator.validation.update_history import UpdateHistory
from edge_server.rounds.events import CheckUpdate, UpdateChecked
from edge_server.storage.journal import Journal
from edge_server.storage.recovery import Resumption
from edge_server.strategy.groups.rule import GroupRule
from edge_server.strategy.strategy import State
from schemas.errors import PeerError
from schemas.messages import TrainTask, Update
from schemas.submodel import ChannelMap
from schemas.values import Reason

AT_ONCE = max(1, min(4, (os.cpu_count() or 1) // 2))
"""Updates that are looked at side by side; the other cores have the rest of the server, and the broker."""


class UpdateChecker:
    """Examines the updates of one run, and keeps in the journal what came of it.

    `rules` are those of the groups that devices may send beside the model; the `guard` remembers earlier
    updates, and `ratios` are those of their tasks, by device and attempt.
    """

    def __init__(
        self,
        store: BlobStore,
        unpacked: UnpackedCache,
        journal: Journal,
        channel_map: ChannelMap,
        rules: Sequence[GroupRule],
        guard: UpdateHistory,
        ratios: Mapping[tuple[str, int], float],
    ) -> None:
        self._store, self._unpacked, self._journal = store, unpacked, journal
        self._channel_map, self._rules = channel_map, rules
        self.guard, self._ratios = guard, dict(ratios)
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="checking")

    def check(self, command: CheckUpdate, task: TrainTask, state: State) -> UpdateChecked:
        """Verify and examine an uploaded update; it is on disk and in the journal when this returns."""
        sound = self._store.verify(command.update.blob)
        return self._judged(command, task, self._examined((command, task), sound), state)

    def check_all(self, checks: Sequence[tuple[CheckUpdate, TrainTask]], state: State) -> list[UpdateChecked]:
        """Check several updates side by side: the disk is waited for once for all of them.

        What an update is by itself is found out in any order, what it is beside the others in theirs.
        """
        self._store.keep_sound(command.update.blob for command, _ in checks)
        sound = [self._store.verify(command.update.blob) for command, _ in checks]
        # One that waits alone, as most do where the server keeps up, is not worth another thread.
        side_by_side = self._pool.map if len(checks) > 1 else map
        with self._journal.together():
            found = side_by_side(self._examined, checks, sound)
            return [
                self._judged(command, task, one, state)
                for (command, task), one in zip(checks, found, strict=True)
            ]

    def _examined(self, check: tuple[CheckUpdate, TrainTask], sound: bool) -> Examination:
        command, task = check
        if not sound:
            return NOT_ITS_BYTES
        return examined(
            command.update,
            self._store.path(command.update.blob.digest),
            task,
            self._channel_map,
            self._rules,
            unpacked=self._unpacked,
            segments=command.segments,
        )

    def _judged(
        self, command: CheckUpdate, task: TrainTask, found: Examination, state: State
    ) -> UpdateChecked:
        update, norms = command.update, self.guard.measure(found.sizes)
        reason, detail = found.reason, found.detail
        if reason is None and found.groups:
            try:
                self.guard.check(
                    update, found.groups, found.sizes, norms, params=state.params, round_number=state.round
                )
            except PeerError as error:
                reason, detail = Reason(error.reason), str(error)
        self.guard.judged(update, norms, reason)
        # A refused blob stays until the next planning: the same bytes may be what another device is given,
        # or has sent.
        if reason is None:
            self._ratios[update.device, update.attempt] = task.ratio
        self._journal.examined(update, reason=reason, ratio=task.ratio, norms=norms)
        return UpdateChecked(command.device, update.blob.digest, reason, detail)

    def outliers(self, updates: Mapping[str, Update]) -> dict[str, str]:
        """Which of a round's accepted updates are unlike all the others, by device, and why in words."""
        found = self.guard.outliers({name: self._journal.norms(update) for name, update in updates.items()})
        for name in found:
            self._ratios.pop((name, updates[name].attempt), None)
        return found

    def taken_ratio(self, update: Update) -> float | None:
        """The ratio of the task of an update that is aggregated now, where that is known."""
        return self._ratios.pop((update.device, update.attempt), None)


def make_checker(model: ModelState, storage: RunStorage, resume: Resumption) -> UpdateChecker:
    """The checker of a run, with what the firewall remembers from before the run was resumed."""
    context = model.context
    firewall = context.config.firewall
    if context.privacy.on:
        # Every update is clipped, and noise changes their usual size in every round.
        firewall = firewall.model_copy(update={"norm_bound": False})
    rules = context.strategy.groups
    guard = UpdateHistory(firewall, context.channel_map, context.testing.canary(model.network), rules)
    guard.restore(resume.examined)
    files = (storage.store, storage.unpacked, storage.journal)
    return UpdateChecker(*files, context.channel_map, rules, guard, resume.ratios)
