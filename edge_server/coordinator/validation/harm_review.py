"""Closes a round, and again without the updates that make its model worse (`leave_one_out`)."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import cached_property
from typing import NamedTuple

from edge_server.coordinator.model_state import ModelState
from edge_server.coordinator.validation.leave_one_out import Closing, LeaveOneOut, model_without
from edge_server.coordinator.validation.round_review import Refusals
from edge_server.rounds.quarantine import site_key
from edge_server.strategy.aggregation.transforms import transform_updates
from edge_server.strategy.aggregation.updates import ClientUpdate
from edge_server.strategy.strategy import State
from schemas.messages import SiteSum
from schemas.tensors.blobs import Arrays
from schemas.values import Reason

Close = Callable[[Sequence[ClientUpdate], Mapping[str, SiteSum]], State]
"""From the updates of a round, and the sums of sites that some of them are part of, to the next state."""


class ClosedRound(NamedTuple):
    """The `state` after the updates that count, the harm by device and site key, and who is refused for it.

    With a site's sum all of its members are refused.
    """

    state: State
    harm: Mapping[str, float]
    refused: Refusals


class HarmReview:
    """Closes the rounds of one run."""

    def __init__(self, model: ModelState) -> None:
        self._model = model

    @cached_property
    def _leaving_out(self) -> LeaveOneOut | None:
        """None without test data, or where no update is tested."""
        context, strategy = self._model.context, self._model.context.strategy
        allowed = context.config.firewall.leave_one_out
        untested = strategy.withholds or strategy.statistics or not strategy.trains
        if untested or context.privacy.on or not allowed:
            return None
        sample = context.testing.sample(self._model.network)
        return None if sample is None else LeaveOneOut(sample, allowed)

    def close(
        self,
        updates: Sequence[ClientUpdate],
        sums: Mapping[str, SiteSum],
        earlier: Iterable[Mapping[str, float]],
        close: Close,
    ) -> ClosedRound:
        """Close a round, and again without what is refused; `earlier` is the harm of earlier rounds."""
        members = {site_key(site): found.members.keys() for site, found in sums.items()}
        party_of = {name: key for key, names in members.items() for name in names}
        parties = {party_of.get(update.client, update.client) for update in updates}
        if self._leaving_out is None or not self._leaving_out.is_affordable(len(parties)):
            return ClosedRound(close(updates, sums), {}, {})

        after = self._model.state

        def without(out: Set[str]) -> State:
            kept = [update for update in updates if party_of.get(update.client, update.client) not in out]
            return close(kept, {site: sums[site] for site in sums if site_key(site) not in out})

        def close_without(out: Set[str]) -> Closing:
            nonlocal after
            after = without(out)
            if members:
                return Closing(after.params, lambda party: without(out | {party}).params)
            return Closing(after.params, self.model_without(updates, after))

        found = self._leaving_out.find(parties, self._leaving_out.totals(earlier), close_without)
        refused = {
            name: (Reason.WRONG_SUM if party in members else Reason.HARMFUL, words)
            for party, words in found.refused.items()
            for name in members.get(party, (party,))
        }
        # The last round that was closed is that of all who are not refused.
        return ClosedRound(after, found.harm, refused)

    def model_without(self, updates: Sequence[ClientUpdate], after: State) -> Callable[[str], Arrays]:
        """What makes the model without one more of these updates, of which some led to the state `after`."""
        strategy, before = self._model.context.strategy, self._model.state
        channel_map, weights = self._model.context.channel_map, after.observed["weights"]
        kept = [update for update in updates if update.client in weights]
        matched = transform_updates(
            strategy.transforms, kept, before.params, channel_map, ordered=before.ordered
        )
        names = [source.client for source in matched.sources]
        counted = [weights[name] for name in names]
        return lambda name: model_without(names.index(name), matched, counted, before.params, after.params)
