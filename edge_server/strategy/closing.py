"""The second half of a round: from its updates to the next model and what the strategy learns from them."""

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

import numpy as np

from edge_client.storage.file_recycling import Spares
from edge_client.storage.state_file import NotPlainFile, read_plain, write_plain
from edge_server.strategy.aggregation.accumulator import Floats
from edge_server.strategy.aggregation.array_stores import MemoryArrays, NewArrayStore, store_arrays
from edge_server.strategy.aggregation.blocks import as_rows, lazy_arrays
from edge_server.strategy.aggregation.deltas import UpdateCoverage, sum_weights
from edge_server.strategy.aggregation.means import exact_mean, kinds_of
from edge_server.strategy.aggregation.partial_sums import PartialSum
from edge_server.strategy.aggregation.transforms import norm_ratios, transform_updates
from edge_server.strategy.aggregation.updates import (
    ClientUpdate,
    GlobalUpdate,
    RoundUpdates,
    has_trained,
    is_statistic,
    sources_of,
)
from edge_server.strategy.data_statistics import STATISTICS, pool_statistics
from edge_server.strategy.explanations import Observed
from edge_server.strategy.groups.rule import fold_groups
from edge_server.strategy.optimizer.optimizers import add_change, apply_optimizer, clamp_variances
from edge_server.strategy.privacy import mechanism as dp
from edge_server.strategy.privacy.accounting import SumNoise
from edge_server.strategy.pruning.interface import SCORES
from edge_server.strategy.selection.interface import Client, RoundResult
from edge_server.strategy.strategy import State, Strategy, known_examples, statistics_request
from edge_server.strategy.weighting.interface import WeighedUpdates, WeightingTraits, similarity
from schemas.errors import ConfigError, PeerError
from schemas.statistics import StatisticsRequest
from schemas.submodel import ChannelMap
from schemas.tensors.arrays import Array, Arrays, Groups, rows_of
from schemas.tensors.files import FileGroups, FlatGroups, digest_of_tensors

# The state of a run in one file, except for the model, which has a file of its own.

_MODEL = "params"


def save_checkpoint(path: Path, state: State, *, durable: bool = True, spares: Spares | None = None) -> None:
    """Write the state at `path` atomically; raises `InvariantError` for values that are not plain."""
    values = {field.name: getattr(state, field.name) for field in fields(State)}
    write_plain(path, {**values, _MODEL: list(state.params)}, durable=durable, spares=spares)


def load_checkpoint(path: Path, model: Groups, *, keep: NewArrayStore = MemoryArrays) -> State:
    """Read a state back bit for bit, with the parameters of `model`; `keep` as in `close`.

    Raises `ConfigError` for a file that is no checkpoint, and for a model that does not belong to it.
    """
    try:
        values = read_plain(path)
        state = State(**{**values, _MODEL: {name: model["model"][name] for name in values[_MODEL]}})
        optimizer = _store_groups(state.server_optimizer, keep)
        return replace(state, groups=_store_groups(state.groups, keep), server_optimizer=optimizer)
    except (NotPlainFile, TypeError) as error:
        raise ConfigError(f"{path} is not a checkpoint of this program: {error}") from error
    except (OSError, PeerError, KeyError) as error:
        raise ConfigError(f"{path}: its model cannot be read: {error}") from error


def load_state(
    checkpoint: Path, model: Path, sha256: str | None = None, *, keep: NewArrayStore = MemoryArrays
) -> State:
    """The state of a checkpoint with the model from the file `model`; `keep` as in `close`.

    Raises `ConfigError` if a file is missing or damaged, or the model's digest is not `sha256`.
    """
    state = load_checkpoint(checkpoint, FileGroups(model), keep=keep)
    if sha256 not in (None, digest_of_tensors(FlatGroups({"model": state.params}))):
        raise ConfigError(f"{model} is not the model that round {state.round} ended with: put that back")
    return state


def _store_groups(groups: Groups, keep: NewArrayStore) -> Groups:
    return {name: store_arrays(arrays, keep) for name, arrays in groups.items()}


def close_round(
    strategy: Strategy,
    state: State,
    updates: Sequence[ClientUpdate],
    channel_map: ChannelMap,
    *,
    clients: Sequence[Client] = (),
    parts: Sequence[PartialSum] = (),
    keep: NewArrayStore = MemoryArrays,
) -> State:
    """Aggregate the updates of a round, in any order; `clients` are those that it could choose from.

    `parts` are sums of those updates whose arrays are not here (`whole_weights`). `keep` makes the stores for
    groups and for the optimizer's state; the model is always in memory.
    """
    if (request := statistics_request(strategy, state)) is not None:
        return _close_statistics(strategy, state, updates, request)
    updates, _ = strategy.claims.bound_figures(updates, known_examples(state))
    matched = transform_updates(
        strategy.transforms, updates, state.params, channel_map, ordered=state.ordered
    )
    weighed, combined, privacy = _combine(strategy, state, matched, channel_map, parts)
    change = decay_missing(combined, matched, weighed.weights, state.params)
    sources = sources_of(matched)
    ranks = strategy.own_order and not state.ordered and any(source.groups.get(SCORES) for source in sources)
    params, optimizer = state.params, state.server_optimizer
    if has_trained(sources):
        params, optimizer = _apply_change(strategy, state, change, ranks=ranks, keep=keep)
    observed = _observed_of_updates(sources, weighed)
    if ranks:
        observed["norm_ratios"] = norm_ratios(matched, weighed.weights, state.params, params)
    number, weights = state.round + 1, observed["weights"]
    noise = _noise_of(strategy, state, number)
    result = RoundResult(number, matched, weights, state.params, params, clients, channel_map, keep, noise)
    groups, result = fold_groups(strategy.groups, state.groups, result)
    after = replace(
        _learn_from_round(strategy, state, result),
        params=result.after,
        round=number,
        ordered=state.ordered or ranks,
        groups=groups,
        server_optimizer=optimizer,
        privacy=privacy,
    )
    return replace(after, observed={**observed, **_observed_of_state(strategy, state, after)})


def _noise_of(strategy: Strategy, state: State, number: int) -> SumNoise | None:
    if strategy.privacy is None or state.privacy is None:
        return None
    return SumNoise(bytes.fromhex(state.privacy["secret"]), number, strategy.privacy.noise_multiplier)


def _close_statistics(
    strategy: Strategy, state: State, updates: Sequence[ClientUpdate], request: StatisticsRequest
) -> State:
    """Close a round in which devices measured their data; claims limit their shares of the examples."""
    sent = {update.client: update.examples for update in updates}
    believed, _ = strategy.claims.bound_figures(updates, known_examples(state))
    shares = {update.client: update.examples / sent[update.client] for update in believed}
    return replace(
        state, round=state.round + 1, observed={STATISTICS: pool_statistics(believed, request, shares)}
    )


def _combine(
    strategy: Strategy,
    state: State,
    matched: RoundUpdates,
    channel_map: ChannelMap,
    parts: Sequence[PartialSum],
) -> tuple[WeighedUpdates, Arrays, dp.PrivacyState | None]:
    """Each update's weight, the change of the model, and the next privacy state."""
    if strategy.privacy is None:
        weighed = strategy.weighting.weigh_updates(state.weighting, matched)
        if WeightingTraits.of(strategy.weighting).is_measured:
            weighed = replace(weighed, weights=strategy.claims.limit_weights(weighed.weights))
        counts = strategy.weighting.counts(sources_of(matched)) if state.exact else None
        if counts is not None:
            return weighed, exact_mean(matched, counts, parts), state.privacy
        return weighed, strategy.combiner(matched, weighed.weights), state.privacy
    assert state.privacy is not None
    change, privacy = dp.noisy_change(strategy.privacy, state.privacy, state.round + 1, matched, channel_map)
    return WeighedUpdates(np.full(len(matched), 1 / len(matched))), change, privacy


def decay_missing(change: Arrays, updates: Sequence[GlobalUpdate], weights: Floats, params: Arrays) -> Arrays:
    """The change of the model w, less lambda s^2 w, where s is the share of clients that lack a coordinate.

    Channels that many devices lack become smaller, so that they do not fit the data of their few holders.
    Shares are of `weights` [K], among the clients whose transform says that the coordinate decays
    (`decaying`); lambda is their `decay`. The square spares what most clients hold. Running statistics do not
    decay. Computed a few rows at a time, from sub-models alone: updates that were summed elsewhere count.
    """
    if not any(update.decay for update in updates):
        return change
    decays = [weight * update.decay for update, weight in zip(updates, weights, strict=True)]

    def rows(name: str, start: int, stop: int) -> Array:
        made: Array = as_rows(rows_of(change, name, start, stop))
        if is_statistic(name):
            return made

        def sum_coverages(coverages: Sequence[UpdateCoverage], summands: Sequence[float]) -> Floats:
            parts = [coverage.index_set(name).slice_rows(start, stop)[1] for coverage in coverages]
            return sum_weights(parts, summands)

        covered = [update.decaying or update.coverage for update in updates]
        held = [update.held for update in updates]
        total = sum_coverages(covered, list(weights))
        lacking, lost = (
            total - sum_coverages(held, list(weights)),
            sum_coverages(covered, decays) - sum_coverages(held, decays),
        )
        shape = np.broadcast_shapes(np.shape(lacking), np.shape(total))
        share = np.divide(lost * lacking, total**2, out=np.zeros(shape), where=total > 0)
        decayed: Array = made - (share * as_rows(params[name])[start:stop]).astype(np.float32)
        return decayed

    return lazy_arrays(kinds_of(updates), rows)


def _apply_change(
    strategy: Strategy, state: State, change: Arrays, *, ranks: bool, keep: NewArrayStore
) -> tuple[Arrays, Groups]:
    """The server optimizer's step.

    A round that `ranks` channels mostly reorders them: its change is added as it is and leaves no momentum.
    """
    if ranks:
        return clamp_variances(add_change(state.params, change)), {}
    before, optimizer = state.server_optimizer, strategy.server_optimizer
    params, gathered = apply_optimizer(optimizer, before, state.params, change, keep=keep)
    return clamp_variances(params), gathered


def _learn_from_round(strategy: Strategy, state: State, result: RoundResult) -> State:
    pruning = state.pruning
    if not strategy.own_order:
        pruning = strategy.pruner.observe(pruning, sources_of(result.updates), result.channel_map)
    return replace(
        state,
        pruning=pruning,
        selection=strategy.selection.observe(state.selection, result),
        ratio=strategy.ratio.observe(state.ratio, result),
        weighting=strategy.weighting.observe(state.weighting, result),
    )


def whole_weights(strategy: Strategy, state: State, updates: Sequence[ClientUpdate]) -> dict[str, int] | None:
    """The whole weights of updates that may be added in parts, by client; None where each is needed."""
    if not state.exact or statistics_request(strategy, state) is not None:
        return None
    believed, _ = strategy.claims.bound_figures(updates, known_examples(state))
    ordered = sorted(believed, key=lambda update: update.client)
    counts = strategy.weighting.counts(ordered)
    names = [update.client for update in ordered]
    return None if counts is None else dict(zip(names, counts, strict=True))


def _observed_of_updates(sources: Sequence[ClientUpdate], weighed: WeighedUpdates) -> Observed:
    """The weight of each client, and the similarity of their updates where it was measured."""
    names = [source.client for source in sources]
    seen: Observed = {"weights": dict(zip(names, map(float, weighed.weights), strict=True))}
    if weighed.products is not None:
        seen["similarity"] = similarity(weighed.products, names)
    return seen


def _observed_of_state(strategy: Strategy, before: State, after: State) -> Observed:
    """The privacy that the round has spent, and what selection and ratio say of themselves."""
    seen: Observed = {
        **strategy.selection.observations(after.selection),
        **strategy.ratio.observations(after.ratio),
    }
    for rule in strategy.groups:
        seen = {**seen, **rule.observations(after.groups.get(rule.name, {}))}
    if strategy.privacy is None or after.privacy is None or before.privacy is None:
        return seen
    return {**dp.observe_round(strategy.privacy, after.privacy, before.privacy["clip"]), **seen}
