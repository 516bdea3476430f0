"""Checks uploaded updates against earlier ones, and writes the verdicts to disk."""

from collections.abc import Mapping, Sequence

from edge_server.coordinator.aggregators.pool import AggregatorPool
from edge_server.coordinator.model_state import ModelState
from edge_server.coordinator.run_context import RunContext
from edge_server.coordinator.run_storage import RunStorage
from edge_server.coordinator.validation.examiner import PendingCheck, UpdateExaminer
from edge_server.coordinator.validation.magnitudes import is_moved
from edge_server.coordinator.validation.update import Examination
from edge_server.coordinator.validation.update_history import UpdateHistory
from edge_server.rounds.events import CheckUpdate, UpdateChecked
from edge_server.storage.journal import Journal
from edge_server.storage.recovery import Resumption
from edge_server.strategy.planning import params_of
from edge_server.strategy.strategy import State
from schemas.errors import PeerError
from schemas.messages import TrainTask, Update
from schemas.values import Reason


class UpdateChecker:
    """Judges the examined updates of one run and writes the verdicts to the journal.

    `ratios` are the ratios of the tasks of earlier updates, by device and attempt.
    """

    def __init__(
        self,
        context: RunContext,
        journal: Journal,
        examiner: UpdateExaminer,
        history: UpdateHistory,
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
        self._journal.examined(update, reason=reason, ratio=ratio, norms=norms)
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
        moved = is_moved(found.sizes) or (receipt is not None and receipt.moved)
        try:
            params = params_of(self._context.strategy, state, check.task.spec, self._context.channel_map)
            self.history.check(
                update, found.groups, norms, moved=moved, params=params, round_number=state.round
            )
        except PeerError as error:
            return Reason(error.reason), str(error)
        return None, found.detail

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
    canary = context.testing.canary(model.network)
    history = UpdateHistory(firewall, context.channel_map, canary, context.strategy.groups)
    history.restore(resume.examined)
    examiner = UpdateExaminer(context, storage, aggregators)
    return UpdateChecker(context, storage.journal, examiner, history, resume.ratios)
