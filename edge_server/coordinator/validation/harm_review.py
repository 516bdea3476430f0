"""Closes a round, and again without the updates that make its model worse (`leave_one_out`)."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from edge_server.config.run_sections import FirewallSettings
from edge_server.coordinator.model_state import ModelState
from edge_server.coordinator.run_context import RunContext
from edge_server.coordinator.validation import consistency, round_review
from edge_server.coordinator.validation.leave_one_out import Closing, LeaveOneOut, model_without
from edge_server.coordinator.validation.norms import (
    ALL,
    MODEL,
    STATISTICS,
    NormBound,
    Norms,
    Outliers,
    is_model,
    norms_of,
)
from edge_server.rounds.quarantine import site_key
from edge_server.storage.journal_reader import ExaminedUpdate
from edge_server.strategy.aggregation.combiners import cosines_to_others
from edge_server.strategy.aggregation.transforms import transform_updates
from edge_server.strategy.aggregation.updates import ClientUpdate, has_trained, is_statistic
from edge_server.strategy.groups.rule import GroupRule
from edge_server.strategy.groups.statistics import Statistics
from edge_server.strategy.strategy import State
from schemas.errors import PeerError, Reason
from schemas.messages import SiteSum, Update
from schemas.submodel import ChannelMap
from schemas.tensors.arrays import Arrays, Groups

STATISTICS_SPREAD = 6.0
"""Spread of normalisation statistics on unlike data, relative to that of weights without normalisation."""
NORMALISED_SPREAD = 2.0
"""Spread of weights before a normalisation, whose scale no loss fixes (measured: 8.5 medians, without 5)."""


class UpdateHistory:
    """Replays, norms and the canary of one run, if it has one.

    `rules` are those of the groups that devices may send in addition to the model; `parts` are those that the
    same tiers train. Where updates are `compared` on test data, that decides on norms beyond the bound.
    """

    def __init__(
        self,
        settings: FirewallSettings,
        channel_map: ChannelMap,
        canary: round_review.Canary | None = None,
        rules: Sequence[GroupRule] = (),
        *,
        parts: Mapping[str, str] = ALL,
        compared: bool = False,
    ) -> None:
        self._channel_map, self._parts, self._compared = channel_map, parts, compared
        self._bounded = frozenset((rule.name, array) for rule in rules for array in rule.bounded)
        normalised = any(map(is_statistic, channel_map.parameters))
        self._spreads = {
            MODEL: NORMALISED_SPREAD if normalised else 1.0,
            STATISTICS: STATISTICS_SPREAD,
            **{rule.name: rule.spread for rule in rules},
        }
        self.norms, self.replays = NormBound(settings), Replays()
        self._canary = canary

    def measure(self, sizes: consistency.Magnitudes) -> dict[str, float]:
        return norms_of(sizes, self._channel_map, self._bounded, self._parts)

    def find_outliers(self, updates: Mapping[str, Norms]) -> Outliers:
        """The updates of a round that differ from all others."""
        return self.norms.find_outliers(updates, self._spreads, tried=self._compared)

    def check(
        self, update: Update, groups: Groups, norms: Norms, *, moved: bool, params: Arrays, round_number: int
    ) -> None:
        """Raise `PeerError` unless the update is new, within bounds and harmless to the model `params`.

        A `moved` update has a number other than 0. `round_number` is that of the model; in buffered mode that
        of the task may be lower.
        """
        self.replays.check(update.device, update.blob.digest, update.round, moved=moved)
        known = all(self.norms.is_known(kind) for kind in norms if is_model(kind))
        sizes = {} if known else consistency.magnitudes_of({MODEL: params})
        reference = norms_of(sizes, self._channel_map).get(MODEL)
        self.norms.check(norms, reference, tried=self._compared)
        late = update.round <= round_number
        consistency.check_variances(update, groups, params, self._channel_map, late=late)
        # A sum is tested in place of the updates that lie at a site.
        if self._canary is not None and update.receipt is None:
            alone = ClientUpdate(update.device, update.spec, groups, update.metrics.examples)
            self._canary.check(alone, params, self._channel_map, round_number)

    def record(self, update: Update, norms: Norms, reason: Reason | None) -> None:
        self.restore([ExaminedUpdate(update.round, update.device, update.blob.digest, reason, norms)])

    def reset(self, rows: Iterable[ExaminedUpdate]) -> None:
        """Forget all verdicts but these: some updates were refused after they had been accepted."""
        self.norms, self.replays = NormBound(self.norms.settings), Replays()
        self.restore(rows)

    def restore(self, rows: Iterable[ExaminedUpdate]) -> None:
        """Remember earlier verdicts from the journal, in order."""
        rows = list(rows)
        self.norms = self.norms.after((row.device, row.reason, row.norms) for row in rows)
        for row in rows:
            if row.reason is None:
                self.replays.count(row.device, row.digest, row.round)


MAX_DIGESTS = 10_000


@dataclass
class Replays:
    """The round in which each digest of a device first counted, for the newest `MAX_DIGESTS` of the run.

    Equal bytes in one round are no replay: a repeated planning trains the same model with the same seed. Nor
    are equal bytes of two devices, which may have the same few examples.
    """

    rounds: dict[tuple[str, str], int] = field(default_factory=dict)

    def check(self, device: str, digest: str, round_number: int, *, moved: bool) -> None:
        """Raise `PeerError` for bytes of another round, unless the update is all zeros (not `moved`)."""
        first = self.rounds.get((device, digest), round_number)
        if moved and first != round_number:
            raise PeerError(f"the bytes counted in round {first} already", reason=Reason.REPLAYED)

    def count(self, device: str, digest: str, round_number: int) -> None:
        self.rounds.setdefault((device, digest), round_number)
        if len(self.rounds) > MAX_DIGESTS:
            del self.rounds[next(iter(self.rounds))]


Close = Callable[[Sequence[ClientUpdate], Mapping[str, SiteSum]], State]
"""From the updates of a round, and the sums of sites that some of them are part of, to the next state."""


class ClosedRound(NamedTuple):
    """The `state` after the updates that count, the harm by device and site key, and who is refused for it.

    With a site's sum all of its members are refused.
    """

    state: State
    harm: Mapping[str, float]
    refused: round_review.Refusals


def compares(context: RunContext) -> bool:
    """Whether the updates of a run are compared on test data."""
    strategy, allowed = context.strategy, context.config.firewall.leave_one_out
    untested = strategy.withholds or strategy.statistics or not strategy.trains
    return bool(allowed) and context.testing.is_sampled and not untested and not context.privacy.on


class HarmReview:
    """Closes the rounds of one run."""

    def __init__(self, model: ModelState) -> None:
        self._model = model

    @cached_property
    def _leaving_out(self) -> LeaveOneOut | None:
        """None without test data, or where no update is tested."""
        context = self._model.context
        sample = context.testing.sample(self._model.network) if compares(context) else None
        return None if sample is None else LeaveOneOut(sample, context.config.firewall.leave_one_out)

    def close(
        self,
        updates: Sequence[ClientUpdate],
        sums: Mapping[str, SiteSum],
        earlier: Iterable[Mapping[str, float]],
        close: Close,
        suspects: Mapping[str, str],
    ) -> ClosedRound:
        """Close a round, and again without what is refused; `earlier` is the harm of earlier rounds.

        `suspects` are devices whose updates are beyond the bound of norms, with the words: they are refused
        where the round is not compared, and where they do more harm than a round may do as usual.
        """
        members = {site_key(site): found.members.keys() for site, found in sums.items()}
        party_of = {name: key for key, names in members.items() for name in names}
        parties = {party_of.get(update.client, update.client) for update in updates}
        if self._leaving_out is None or not self._leaving_out.is_affordable(len(parties)):
            return _close_uncompared(updates, sums, close, suspects)

        after, review = self._model.state, self._leaving_out
        totals = review.totals(earlier)
        # In a round after training, devices measure statistics for the model.
        measures = any(update.groups.get(Statistics.name) for update in updates)
        if measured := measures and not has_trained(updates):
            review, totals = review.at_once(), {}

        def without(out: Set[str]) -> State:
            kept = [update for update in updates if party_of.get(update.client, update.client) not in out]
            return close(kept, {site: sums[site] for site in sums if site_key(site) not in out})

        def close_without(out: Set[str]) -> Closing:
            nonlocal after
            after = without(out)
            if members or measured:
                return Closing(after.params, lambda party: without(out | {party}).params, {})
            return self.closing(updates, after)

        found = review.find(parties, totals, close_without, suspects.keys())
        refused = {
            name: (Reason.WRONG_SUM if party in members else Reason.HARMFUL, words)
            for party, words in found.refused.items()
            for name in members.get(party, (party,))
        }
        for name in suspects.keys() & refused.keys():
            refused[name] = (Reason.OUT_OF_BOUNDS, f"{suspects[name]}; {found.refused[name]}")
        # The last round that was closed is that of all who are not refused.
        return ClosedRound(after, found.harm, refused)

    def closing(self, updates: Sequence[ClientUpdate], after: State) -> Closing:
        """The round of these updates, of which some led to the state `after`."""
        strategy, before = self._model.context.strategy, self._model.state
        channel_map, weights = self._model.context.channel_map, after.observed["weights"]
        kept = [update for update in updates if update.client in weights]
        matched = transform_updates(
            strategy.transforms, kept, before.params, channel_map, ordered=before.ordered
        )
        names = [source.client for source in matched.sources]
        counted = [weights[name] for name in names]
        cosines = cosines_to_others(matched, counted)
        return Closing(
            after.params,
            lambda name: model_without(names.index(name), matched, counted, before.params, after.params),
            dict(zip(names, cosines.tolist(), strict=True)),
        )


def _close_uncompared(
    updates: Sequence[ClientUpdate], sums: Mapping[str, SiteSum], close: Close, suspects: Mapping[str, str]
) -> ClosedRound:
    """The round without its suspects; where there is nobody else the bound is wrong, and all count."""
    fitting = [update for update in updates if update.client not in suspects]
    if not fitting:
        return ClosedRound(close(updates, sums), {}, {})
    refused = {name: (Reason.OUT_OF_BOUNDS, words) for name, words in suspects.items()}
    return ClosedRound(close(fitting, sums), {}, refused)
