"""FedGH's server: a header trained on prototypes (Yi et al. 2023, Generalized Global Header, Algorithm 1)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from edge_server.strategy.aggregation.updates import GlobalUpdate, group_to_global
from edge_server.strategy.groups.rule import FoldedGroup, GroupRule, GroupTraits, Shape
from edge_server.strategy.selection.interface import RoundResult
from schemas.errors import PeerError, Reason
from schemas.submodel import ChannelMap
from schemas.tensors.arrays import Array, Arrays
from schemas.values import ModelSpec

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Labelled:
    """One client's prototypes [n, D] and their classes [n].

    In global coordinates; 0 in channels that it lacks, which adds nothing to a score or a gradient.
    """

    values: Floats
    classes: NDArray[np.intp]


@GroupTraits(ignores_models=True)
@dataclass(frozen=True)
class Header(GroupRule):
    """The global header is trained on all clients' prototypes by cross-entropy, not averaged.

    It starts from the header before the round and takes one SGD step per client and epoch, on the mean over
    that client's classes, clients sorted by name (the paper also steps through clients and classes, and
    names no batch); a class counts once per client, whatever its number of examples. Without prototypes the
    header is the averaged one.

    As published, extractors differ between clients and are never aggregated. Here there is one elastic
    model, so extractors are averaged over their holders as in any other strategy; sub-models of reduced width
    are how ATTENDING compares with FedGH (appendix F).
    """

    learning_rate: float = 0.01
    epochs: int = 1
    name: ClassVar[str] = "prototypes"
    downlink: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not (0 < self.learning_rate < np.inf):
            raise ValueError("learning-rate must be above 0")
        if self.epochs < 1:
            raise ValueError("epochs must be at least 1")

    def shapes(self, model: Mapping[str, Shape], network: ModelSpec) -> Mapping[str, Shape]:
        """The sub-model's prototypes; raises `ConfigError` for a network without a header."""
        from edge_client.models.build import header_of

        weight = f"{header_of(network)}.weight"
        return {weight: model[weight], "counts": (network.num_classes,)}

    def check(self, sent: Arrays, examples: int) -> None:
        """Counts are at least 0, and together at most the update's examples."""
        counts = sent["counts"]
        if (counts < 0).any() or float(counts.sum()) > examples:
            detail = f"prototypes of {counts.sum():g} examples in an update of {examples}"
            raise PeerError(detail, reason=Reason.OUT_OF_BOUNDS)

    def fold(self, held: Arrays, result: RoundResult) -> FoldedGroup:
        senders = [update for update in result.updates if _counts(update) is not None]
        if not senders:
            return FoldedGroup(held, result.after)
        clients = _Prototypes(senders, result.channel_map)
        (weight,) = group_to_global(senders[0], Header.name, result.channel_map)[0]
        bias = f"{weight.removesuffix('.weight')}.bias"
        header = {name: result.before[name] for name in (weight, bias) if name in result.before}
        return FoldedGroup(held, {**result.after, **self.train(header, weight, clients)})

    def train(self, header: Arrays, weight: str, clients: Iterable[Labelled]) -> Arrays:
        """The header after all epochs: its array `weight` [classes, D]; others are biases [classes]."""
        trained = {name: array.astype(np.float64) for name, array in header.items()}
        for _ in range(self.epochs):
            for client in clients:
                bias = sum(array for name, array in trained.items() if name != weight)
                error = _error(client.values @ trained[weight].T + bias, client.classes)
                for name in trained:
                    slope = error.T @ client.values if name == weight else error.sum(0)
                    trained[name] = trained[name] - self.learning_rate * slope
        return {name: array.astype(np.float32) for name, array in trained.items()}


class _Prototypes(Iterable[Labelled]):
    """Every client's prototypes, read again in every epoch: together they may be larger than the model."""

    def __init__(self, updates: Sequence[GlobalUpdate], channel_map: ChannelMap) -> None:
        self._updates, self._map = updates, channel_map

    def __iter__(self) -> Iterator[Labelled]:
        for update in self._updates:
            counts = _counts(update)
            assert counts is not None
            (means,) = group_to_global(update, Header.name, self._map)[0].values()
            classes = np.flatnonzero(counts > 0)
            yield Labelled(means[classes].astype(np.float64), classes)


def _counts(update: GlobalUpdate) -> Array | None:
    """The number of examples of each class's prototype; None if the client sent no prototypes."""
    counts = update.source.groups.get(Header.name, {}).get("counts")
    return None if counts is None or not (counts > 0).any() else counts


def _error(scores: Floats, classes: NDArray[np.intp]) -> Floats:
    """The gradient of the mean cross-entropy by the scores [n, classes]: (softmax - one-hot) / n."""
    likely = np.exp(scores - scores.max(1, keepdims=True))
    likely /= likely.sum(1, keepdims=True)
    likely[np.arange(len(likely)), classes] -= 1
    return np.asarray(likely / len(likely))
