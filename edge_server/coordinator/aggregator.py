"""Closing a round: from the accepted updates to the next model, its tests, its record and the journal."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from edge_client.data.tasks.registry import learning_task
from edge_client.pruning.channel_selection import group_ratios
from edge_server.coordinator.aggregators import pool, worker
from edge_server.coordinator.global_model import has_diverged
from edge_server.coordinator.model_state import ModelState
from edge_server.coordinator.round_record import (
    NO_FIGURES,
    RoundFigures,
    is_observed,
    observation,
    round_record,
)
from edge_server.coordinator.round_recorder import RoundRecorder
from edge_server.coordinator.round_tests import RoundTest, RoundTests
from edge_server.coordinator.run_storage import RunStorage
from edge_server.coordinator.tasks import masking
from edge_server.coordinator.tasks.task import counts_classes
from edge_server.coordinator.tier_assignment import TierAssigner
from edge_server.coordinator.validation.checker import UpdateChecker
from edge_server.coordinator.validation.harm_review import HarmReview
from edge_server.coordinator.validation.round_review import Refusals, RoundReview, make_review
from edge_server.coordinator.validation.site_sums import SumChecker
from edge_server.coordinator.validation.update import accepted_update, is_summed, known_clients
from edge_server.rounds.events import CloseRound, UpdatesWeighed
from edge_server.security.secure_aggregation.protocol import OpenedSecrets
from edge_server.storage.disk import wait_for_disk
from edge_server.storage.journal import AggregatedUpdate
from edge_server.storage.records import RoundRecord
from edge_server.strategy.aggregation.partial_sums import PartialSum, most_sum_bytes
from edge_server.strategy.aggregation.updates import ClientUpdate
from edge_server.strategy.closing import close_round, whole_weights
from edge_server.strategy.explanations import Observation
from edge_server.strategy.strategy import State, known_examples, statistics_request
from schemas.errors import InvariantError, Reason
from schemas.messages import SiteSum, Update

log = logging.getLogger(__name__)
SHRUNK = 0.7
"""A layer whose norm is below this share of the clients' mean norm was averaged from unlike channels."""


@dataclass(frozen=True)
class Reviewed:
    """The updates of a round that is being closed: those `sent`, why some are `refused`, and the rest.

    `sums` are those of sites, by site, whose members are `accepted`.
    """

    sent: Mapping[str, Update]
    refused: Refusals
    accepted: Mapping[str, Update]
    sums: Mapping[str, SiteSum]
    updates: Sequence[ClientUpdate]
    look: RoundReview
    after: State


class Aggregator:
    def __init__(
        self,
        model: ModelState,
        storage: RunStorage,
        checker: UpdateChecker,
        sums: SumChecker,
        tiering: TierAssigner,
        tests: RoundTests,
        recorder: RoundRecorder,
        aggregators: pool.AggregatorPool,
    ) -> None:
        self._context, self._model, self._storage = model.context, model, storage
        self._checker, self._sums, self._tiering = checker, sums, tiering
        self._tests, self._recorder, self._aggregators = tests, recorder, aggregators
        self.harm_review = HarmReview(model)

    def weigh(self, command: CloseRound) -> UpdatesWeighed:
        """The weights of those updates of a round that lie at sites and fit the others."""
        refused = self._checker.find_outliers(command.updates).refused
        accepted = {name: update for name, update in command.updates.items() if name not in refused}
        updates = self.client_updates(accepted, command.staleness, take_ratios=False)
        weights = whole_weights(self._context.strategy, self._model.state, updates)
        if weights is None:
            raise InvariantError("updates lie at sites, and the strategy needs each by itself")
        lying = {name: weights[name] for name, update in accepted.items() if is_summed(update)}
        return UpdatesWeighed(command.round, lying, most_sum_bytes(self._context.channel_map))

    def close(self, command: CloseRound, figures: RoundFigures = NO_FIGURES) -> RoundRecord:
        """Aggregate the round's updates into the next model, write it, and test it or begin to.

        The record lacks the figures of a test that still runs. The recorder has the round until it writes
        its line of history; the round before is recorded first. The journal comes after everything that it
        names: a round is closed once the journal says so. Before that the round can be aggregated again, to
        the same bytes, so only one step waits for the disk.
        """
        self._recorder.record_round()
        before, was_ranked = self._model.state.round, self._is_ranked()
        reviewed = self.review(command)
        self._take(reviewed)
        self._model.save(command.round, durable=False)
        test = self._tests.begin(command.round)
        record = self._record(command, figures, reviewed.look, test)
        if test.found is not None:
            record = self._recorder.with_warnings(record)
        self._archive(command, before, reviewed)
        if self._context.durable:
            wait_for_disk(self._storage.folder.written(command.round))
        ranked = self._is_ranked() and not was_ranked
        observed = self.observe_round(reviewed.updates, ranked=ranked)
        self._journal(command, reviewed, record, figures, observed, tested=test.found is not None)
        self._recorder.on_closed_round(record, test, self._context.testing.classes)
        self._model.undone = None
        return record

    def review(self, command: CloseRound) -> Reviewed:
        """Compare the updates with each other, and refuse outliers and those that make the model worse."""
        sent = self._unmask_updates(command)
        outliers, suspects = self._checker.find_outliers(sent)
        fitting = {name: update for name, update in sent.items() if name not in outliers}
        updates = self.client_updates(fitting, command.staleness)
        earlier = (record.harm for record in self._recorder.earlier)
        close_with = partial(self.state_after, fitting)
        after, harm, harmful = self.harm_review.close(updates, command.sums, earlier, close_with, suspects)
        refused = {**{name: (Reason.OUT_OF_BOUNDS, words) for name, words in outliers.items()}, **harmful}
        accepted = {name: update for name, update in fitting.items() if name not in harmful}
        sums = {site: found for site, found in command.sums.items() if not harmful.keys() & found.members}
        updates = [update for update in updates if update.client in accepted]
        believed = self._context.strategy.claims.bound_figures(updates, known_examples(self._model.state))
        look = make_review(accepted, refused, harm, *believed)
        return Reviewed(sent, refused, accepted, sums, updates, look, after)

    def _unmask_updates(self, command: CloseRound) -> Mapping[str, Update]:
        """The updates to aggregate; masked updates are replaced by their sum, stored before it is used."""
        if command.opened is None:
            return command.updates
        total = self._sum(self.client_updates(command.updates, {}), command.opened)
        blob = self._storage.store.put_groups(total.groups)
        update = masking.cohort_update(total, blob, next(iter(command.updates.values())))
        self._storage.journal.write_examined(update, reason=None)
        return {update.device: update}

    def _sum(self, masked: Sequence[ClientUpdate], opened: OpenedSecrets) -> ClientUpdate:
        """The sum of masked updates: of a model, of statistics, or of figures of a model."""
        context = self._context
        asked = statistics_request(context.strategy, self._model.state)
        if asked is not None:
            return masking.sum_masked_answers(masked, opened, asked, context.spec)
        if context.strategy.is_summed(self._model.state.round + 1):
            (spec,) = opened.terms.specs
            rules = context.strategy.groups
            numbers = masking.sums_map(rules, spec, context.spec, context.channel_map)
            return masking.sum_masked_sums(masked, opened, rules, numbers)
        if context.strategy.trains:
            return masking.sum_masked_updates(masked, opened, context.network.parts.cut(context.channel_map))
        by_class = counts_classes(context.config, context.spec)
        figures = masking.figures_map(context.spec, context.channel_map, by_class=by_class)
        return masking.sum_masked_figures(masked, opened, context.spec, figures)

    def client_updates(
        self, sent: Mapping[str, Update], staleness: Mapping[str, int], *, take_ratios: bool = True
    ) -> list[ClientUpdate]:
        return [
            accepted_update(
                update,
                self._storage.store.blob_path,
                self._context.channel_map,
                unpacked=self._storage.unpacked,
                staleness=staleness.get(device, 0),
                ratio=self._checker.take_ratio(update) if take_ratios else None,
            )
            for device, update in sent.items()
        ]

    def state_after(
        self, sent: Mapping[str, Update], updates: Sequence[ClientUpdate], sums: Mapping[str, SiteSum]
    ) -> State:
        """The state after these updates, some of which the `sums` of sites contain."""
        context, state = self._context, self._model.state
        with context.durations.time_block("aggregating"):
            members, parts = self._add_in_processes(sent, updates, self._sums.open_sums(sums))
            return close_round(
                context.strategy,
                state,
                members,
                context.channel_map,
                clients=known_clients(state),
                parts=parts,
                keep=self._storage.keep,
            )

    def _add_in_processes(
        self, sent: Mapping[str, Update], updates: Sequence[ClientUpdate], sums: Sequence[PartialSum]
    ) -> tuple[Sequence[ClientUpdate], Sequence[PartialSum]]:
        """The updates to aggregate, and the sums of those that sites or aggregator processes have added."""
        weights = whole_weights(self._context.strategy, self._model.state, updates)
        if weights is None:
            return updates, ()
        members = [
            worker.ToAdd(sent[u.client], weights[u.client], int(u.metrics["staleness"]))
            for u in updates
            if sent[u.client].receipt is None
        ]
        if not members or not self._aggregators.takes(members):
            return updates, sums
        made, groups = self._aggregators.add(members)
        added = [replace(u, groups=groups[u.client]) if u.client in groups else u for u in updates]
        return added, [*sums, *made]

    def _take(self, reviewed: Reviewed) -> None:
        """Make the state after the round that of the run."""
        counted, model = reviewed.look.counted, self._model
        trained = {u.client: (counted[u.client], u.metrics.get("ratio")) for u in reviewed.updates}
        # Of the state before, for the model that the devices have trained decides what their steps took.
        paces = self._tiering.observe(model.state.paces, trained)
        model.state = replace(reviewed.after, paces=paces)
        self._warn_of_shrunk_layers(model.state.observed.get("norm_ratios", {}))

    def _warn_of_shrunk_layers(self, ratios: Mapping[str, float]) -> None:
        shrunk = {name: ratio for name, ratio in ratios.items() if ratio < SHRUNK}
        if shrunk:
            log.warning(
                "round %d: moving each client's channels by its own order shrank %s, compared with the "
                "clients' mean norm: their channels do not correspond. The recipe 'attending' has one order.",
                self._model.state.round,
                ", ".join(f"{name} to {ratio:.2f}" for name, ratio in shrunk.items()),
            )

    def _record(
        self, command: CloseRound, figures: RoundFigures, look: RoundReview, test: RoundTest
    ) -> RoundRecord:
        """The round's line of history, as far as it is known."""
        state, undone = self._model.state, self._model.undone
        record = round_record(
            command,
            fraction=self._context.strategy.fraction(command.round),
            tested=test.found or {},
            observed=state.observed,
            figures=figures,
            look=look,
            task=learning_task(self._context.spec.task),
            outputs=self._context.testing.classes,
            columns=[column.in_words() for column in self._context.testing.columns],
            tiers=None
            if self._context.strategy.trains
            else {n: tier for n, (tier, _) in state.clients.items()},
        )
        change: dict[str, Any] = {"diverged": test.unfit or has_diverged(state.params, test.found or {})}
        if undone is not None:
            change |= {"back_to": undone.round - 1, "left_out": undone.left_out}
        return self._context.privacy.strip_own_metrics(record).model_copy(update=change)

    def _archive(self, command: CloseRound, before: int, reviewed: Reviewed) -> None:
        """Archive the updates, and write the strategy's state; `before` is the round of the earlier state."""
        if not self._context.resumable:
            return
        folder, store = self._storage.folder, self._storage.store
        sent = [update.sent_blob for update in reviewed.accepted.values()]
        files = [store.blob_path(ref.digest) for ref in sent if ref is not None]
        sums = {s: store.blob_path(found.blob.digest) for s, found in reviewed.sums.items() if found.blob}
        first = folder.checkpoint(before), folder.model(before)
        self._storage.archive.keep(command.round, *first, files, sums)
        self._model.save_checkpoint(durable=False)

    def _journal(
        self,
        command: CloseRound,
        reviewed: Reviewed,
        record: RoundRecord,
        figures: RoundFigures,
        observed: Observation | None,
        *,
        tested: bool,
    ) -> None:
        """Close the round in the journal, and forget the updates that were refused."""
        self._storage.journal.write_closed_round(
            command.round,
            self._model.sha256,
            updates=[
                AggregatedUpdate(name, update.attempt, update.blob.digest, command.staleness.get(name, 0))
                for name, update in reviewed.accepted.items()
            ],
            over=command.selected,
            record=record.model_dump_json(),
            tested=tested,
            traffic=figures.traffic,
            observation=observed,
            refused=[(reviewed.sent[name], reason) for name, (reason, _) in reviewed.refused.items()],
        )
        if reviewed.refused:
            self._checker.history.reset(self._storage.examined_updates())

    def _is_ranked(self) -> bool:
        """Whether devices have ranked the channels of the global model."""
        state = self._model.state
        return state.ordered or bool(state.pruning.keys() & self._context.channel_map.groups.keys())

    def observe_round(self, updates: Sequence[ClientUpdate], *, ranked: bool) -> Observation | None:
        """The observation of the round; None for rounds that are not observed."""
        context, state = self._context, self._model.state
        if not ranked and not is_observed(state.round, context.config.federation.last_round):
            return None
        groups = group_ratios(context.network.entry, context.config.tiers.ratios[0], context.channel_map)
        specs = self._model.tier_specs()
        return observation(state, updates, context.channel_map, specs, tuple(groups), ranked=ranked)
