"""Pruners: which channels a device's sub-model keeps, given how many of each group it may keep.

A pruner is asked once per device and round. It answers with the sub-model to send, and, where the device
itself shall choose (ATTENDING's first round), with what it needs for that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from edge_client.pruning import prefix_spec
from schemas.messages import PersonalPruning
from schemas.strategy import Piece
from schemas.submodel import ChannelMap, SubModelSpec


@dataclass(frozen=True)
class Cut:
    """A device's sub-model for one round.

    `personal`: the device cuts it further when it is done; without `train` it only looks at its data.
    """

    spec: SubModelSpec
    personal: PersonalPruning | None = None
    objectives: tuple[Piece, ...] = ()
    train: bool = True


class Pruner(Protocol):
    """Decides the sub-model of one device."""

    def cut(self, ratios: Mapping[str, float], channel_map: ChannelMap, *, ordered: bool) -> Cut:
        """Cut by `ratios` per channel group; `ordered` says whether channels are ranked yet."""
        ...


@dataclass(frozen=True)
class Index:
    """Keep the leading channels, as they are numbered (nested sub-models)."""

    def cut(self, ratios: Mapping[str, float], channel_map: ChannelMap, *, ordered: bool) -> Cut:
        """A prefix per group."""
        return Cut(prefix_spec(ratios, channel_map))


@dataclass(frozen=True)
class Attention:
    """Keep the most attended channels (ATTENDING, Algorithm 1 and section 3.3).

    Until channels are ranked, every device gets the whole network, trains it with attention modules and
    keeps its own best channels; from then on the server cuts the last p of the ranked channels.
    `first_round = "score-only"` skips the training of that first round and only measures attention.
    """

    first_round: str = "train"

    def __post_init__(self) -> None:
        if self.first_round not in ("train", "score-only"):
            raise ValueError(f"first-round is 'train' or 'score-only', not '{self.first_round}'")

    def cut(self, ratios: Mapping[str, float], channel_map: ChannelMap, *, ordered: bool) -> Cut:
        """The whole network and an order to prune it, or a prefix once channels are ranked."""
        if ordered:
            return Cut(prefix_spec(ratios, channel_map))
        layers = tuple(layer for group in sorted(ratios) for layer in channel_map.groups[group].layers)
        attentive = Piece(name="attentive", options={"layers": layers})
        personal = PersonalPruning(ratios=dict(ratios))
        return Cut(SubModelSpec(), personal, (attentive,), train=self.first_round == "train")


PRUNERS: dict[str, Callable[..., Pruner]] = {
    "attention": Attention,
    "index": Index,
}
