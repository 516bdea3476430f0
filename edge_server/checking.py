"""Whether the updates that devices send may count: what is said of one is on disk, and so is the update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edge_client.blobstore import BlobStore
from edge_server.firewall.guard import Guard
from edge_server.journal import Journal
from edge_server.round_events import CheckUpdate, UpdateChecked
from edge_server.strategy.groups.rule import GroupRule
from edge_server.strategy.strategy import State
from edge_server.unpacking import Unpacked
from edge_server.uploads import verdict
from schemas.blobs import Groups
from schemas.messages import Task, Update
from schemas.submodel import ChannelMap


class Checking:
    """Examines the updates of one run, and keeps in the journal what came of it.

    `rules` are those of the groups that devices may send beside the model; the `guard` remembers earlier
    updates, and `ratios` are those of their tasks, by device and attempt.
    """

    def __init__(
        self,
        store: BlobStore,
        unpacked: Unpacked,
        journal: Journal,
        channel_map: ChannelMap,
        rules: Sequence[GroupRule],
        guard: Guard,
        ratios: Mapping[tuple[str, int], float],
    ) -> None:
        self._store, self._unpacked, self._journal = store, unpacked, journal
        self._channel_map, self._rules = channel_map, rules
        self.guard, self._ratios = guard, dict(ratios)

    def check(self, command: CheckUpdate, task: Task, state: State) -> UpdateChecked:
        """Verify and examine an uploaded update; it is on disk and in the journal when this returns."""
        update, norms = command.update, dict[str, float]()

        def further(groups: Groups) -> None:
            norms.update(self.guard.measure(groups))
            self.guard.check(update, groups, norms, params=state.params, round_number=state.round)

        reason, detail = verdict(
            update,
            task,
            self._store,
            self._channel_map,
            self._rules,
            unpacked=self._unpacked,
            segments=command.segments,
            further=further,
        )
        self.guard.judged(update, norms, reason)
        # A refused blob stays until the next planning: the same bytes may be what another device is given,
        # or has sent.
        if reason is None:
            self._ratios[update.device, update.attempt] = task.ratio
        self._journal.examined(update, reason=reason, ratio=task.ratio, norms=norms)
        return UpdateChecked(command.device, update.blob.digest, reason, detail)

    def check_all(self, checks: Sequence[tuple[CheckUpdate, Task]], state: State) -> list[UpdateChecked]:
        """Check several updates: the disk is waited for once for all of them."""
        self._store.keep_sound(command.update.blob for command, _ in checks)
        with self._journal.together():
            return [self.check(command, task, state) for command, task in checks]

    def taken_ratio(self, update: Update) -> float | None:
        """The ratio of the task of an update that is aggregated now, where that is known."""
        return self._ratios.pop((update.device, update.attempt), None)
