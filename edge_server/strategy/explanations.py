"""Why a round was planned as it was, and what it showed of channels and clients: kept for whoever asks.

Nothing of it is needed to go on with a run; what is kept is bounded, however many devices there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from schemas.base import Frozen
from schemas.names import Name
from schemas.submodel import Kept
from schemas.values import Attempt, RoundNumber, Text

MOST_DEVICES = 1000
"""Told of one by one; those that are chosen come first."""
MOST_SIMILAR = 64
"""Clients in a table of similarities."""


class DeviceChoice(Frozen):
    """A device that was there at a planning: chosen or not, and why, in words.

    `score` is what the selection went by, where it goes by anything (AdaFL: the device's attention).
    """

    device: Name
    chosen: bool
    because: Text
    score: float | None = None
    tier: int | None = None
    ratio: float | None = None


class RoundChoices(Frozen):
    """One planning; `left_out` more devices were there that are not listed."""

    attempt: Attempt
    round: RoundNumber
    devices: tuple[DeviceChoice, ...]
    left_out: int = 0


class ChannelScores(Frozen):
    """The channels of one group: what they scored [C], and which of them each tier keeps.

    `magnitude` is the L1 norm of the global model's weights, the mean over the group's layers.
    `attention` is shown of the one round in which devices rank channels (ATTENDING, equation 7), and only of
    that. Channels are numbered as in the global model that the round ended in, and that one has a new order:
    number i is made of what each device ranked i-th by its own attention, and its score is the devices' mean
    of what those have scored. From then on numbers keep their meaning, so these scores are each channel's in
    all later rounds too; earlier numbers are another order.
    """

    layers: tuple[str, ...]
    measure: Literal["attention", "magnitude"]
    scores: tuple[float, ...]
    kept: Mapping[int, Kept] = {}


class Similarity(Frozen):
    """How alike the clients' updates of a round are [K, K]: IGFL's psi, divided by the vectors' norms."""

    clients: tuple[Name, ...]
    values: tuple[tuple[Annotated[float, Field(ge=-1.01, le=1.01)], ...], ...]


class Observation(Frozen):
    """What a closed round showed; `groups` by channel group."""

    round: RoundNumber
    groups: Mapping[str, ChannelScores] = {}
    similarity: Similarity | None = None
