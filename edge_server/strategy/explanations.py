"""Records for people: why devices were chosen, and what a round showed of channels and clients.

No run needs them to continue. Their size is bounded, whatever the number of devices.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypedDict

from pydantic import Field

from schemas.base import Frozen, Name
from schemas.submodel import Kept
from schemas.values import Attempt, RoundNumber, Text

MAX_DEVICES = 1000  # devices listed one by one; the chosen ones come first
MAX_SIMILAR = 64  # clients in a similarity table


class SimilarityTable(TypedDict):
    """Cosine similarities of a round's updates: `values` [K, K] in the order of `clients`."""

    clients: list[str]
    values: list[list[float]]


class Observed(TypedDict, total=False):
    """What a closed round adds to the run's history, by the component that observed it."""

    weights: Mapping[str, float]
    similarity: SimilarityTable
    attention: Mapping[str, float]
    norm_ratios: Mapping[str, float]
    epsilon: float
    delta: float
    clip: float
    statistics: Mapping[str, Any]
    costs: Mapping[str, float]
    suspects: Mapping[str, str]


class DeviceChoice(Frozen):
    """A device that was available at a planning: chosen or not, and why, in words.

    `score` is what decided, if the selection has scores (AdaFL: the device's attention).
    """

    device: Name
    chosen: bool
    because: Text
    score: float | None = None
    tier: int | None = None
    ratio: float | None = None


class RoundChoices(Frozen):
    """One planning; `left_out` counts the available devices that are not listed."""

    attempt: Attempt
    round: RoundNumber
    devices: tuple[DeviceChoice, ...]
    left_out: int = 0


class ChannelScores(Frozen):
    """The channels of one group: their scores [C], and which of them each tier keeps.

    `magnitude` is the L1 norm of the global model's weights, the mean over the group's layers.
    `attention` is recorded only for the round in which devices rank channels (ATTENDING, equation 7): the
    mean of the devices' scores, weighted by examples. With the transform `attention-matching` the global
    model has a new order after that round: channel i combines the channels that each device ranked i-th by
    its own attention, its score is the mean of theirs, and earlier rounds number channels differently.
    """

    layers: tuple[str, ...]
    measure: Literal["attention", "magnitude"]
    scores: tuple[float, ...]
    kept: Mapping[int, Kept] = {}


class Similarity(Frozen):
    """Cosine similarities of a round's updates [K, K]: IGFL's psi over the norms of both updates."""

    clients: tuple[Name, ...]
    values: tuple[tuple[Annotated[float, Field(ge=-1.01, le=1.01)], ...], ...]


class Observation(Frozen):
    """What a closed round showed: channel scores by channel group, similarities of updates."""

    round: RoundNumber
    groups: Mapping[str, ChannelScores] = {}
    similarity: Similarity | None = None
