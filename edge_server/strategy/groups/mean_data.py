"""FedMix's pool of averaged examples (Yoon et al. 2021, Mean Augmented Federated Learning, Algorithm 1)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edge_server.strategy.aggregation.updates import sources_of
from edge_server.strategy.groups.rule import FoldedGroup, GroupRule, Shape, Tiers
from edge_server.strategy.selection.interface import RoundResult
from schemas.errors import PeerError
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.blobs import Array, Arrays
from schemas.values import ModelSpec, Reason


@dataclass(frozen=True)
class MeanData(GroupRule):
    """Every device's averaged examples, sent to all: `images` [M, C, H, W] and `labels` [M, classes].

    The server holds `images/<client>` and `labels/<client>`, and the last `round`. The paper sends down the
    averages of all its 60 to 100 clients. Those of a thousand clients would be larger than the model, so at
    most `pool` averages are sent down, drawn again in every round and the same for all devices.
    """

    pool: int = 256
    name: ClassVar[str] = "mean-data"
    bounded: ClassVar[frozenset[str]] = frozenset({"images"})

    def __post_init__(self) -> None:
        if self.pool < 1:
            raise ValueError("pool must be at least 1")

    def down(self, held: Arrays, spec: SubModelSpec, channel_map: ChannelMap, tiers: Tiers = tuple) -> Arrays:
        """The pool, sorted by client; the same for every sub-model."""
        clients = sorted(name.removeprefix("images/") for name in held if name.startswith("images/"))
        if not clients:
            return {}
        images = np.concatenate([held[f"images/{client}"] for client in clients])
        labels = np.concatenate([held[f"labels/{client}"] for client in clients])
        chosen = _chosen(len(images), self.pool, int(held["round"][0]))
        return {"images": images[chosen], "labels": labels[chosen]}

    def shapes(self, model: Mapping[str, Shape], network: ModelSpec) -> Mapping[str, Shape]:
        """Any number of averages, in the shapes of the network's inputs and classes."""
        return {"images": (None, *network.input_shape), "labels": (None, network.num_classes)}

    def check(self, sent: Arrays, examples: int) -> None:
        """Each average is of two examples or more, with a distribution over the classes as its label."""
        if 2 * len(sent["images"]) > examples or not _are_means(sent["images"], sent["labels"]):
            detail = f"{len(sent['images'])} averages of {examples} examples with labels that are no shares"
            raise PeerError(detail, reason=Reason.OUT_OF_BOUNDS)

    def fold(self, held: Arrays, result: RoundResult) -> FoldedGroup:
        """A client's averages replace its earlier ones; malformed averages are ignored."""
        after = {**held, "round": np.array([result.round], np.float32)}
        for source in sources_of(result.updates):
            sent = source.groups.get(self.name)
            if sent and _are_means(sent["images"], sent["labels"]):
                after |= {f"{kind}/{source.client}": sent[kind] for kind in ("images", "labels")}
        return FoldedGroup(after, result.after)


def _are_means(images: Array, labels: Array) -> bool:
    """Whether every image has a label, and every label is a distribution over the classes."""
    return len(images) == len(labels) and bool(
        (labels >= 0).all() and np.allclose(labels.sum(1), 1, atol=1e-3)
    )


def _chosen(count: int, most: int, seed: int) -> slice | np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return slice(None) if count <= most else np.sort(np.random.default_rng(seed).permutation(count)[:most])
