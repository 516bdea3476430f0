"""What a rollout is judged by: its terms, what a device measures, where it is, and why it ends."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from schemas.base import Frozen
from schemas.values import Count, Fraction, Seconds

Milliseconds = Annotated[float, Field(ge=0, le=1e9)]


class Stage(StrEnum):
    """How far a device is with the model that it was offered. The last three are final."""

    OFFERED = "offered"
    FETCHED = "fetched"
    COMPARED = "compared"
    SWITCHED = "switched"
    KEPT = "kept"
    REFUSED = "refused"
    ROLLED_BACK = "rolled-back"


FINAL = frozenset({Stage.KEPT, Stage.REFUSED, Stage.ROLLED_BACK})


class Cause(StrEnum):
    """Why a device refuses a model or goes back from it: stable codes."""

    ACCURACY = "accuracy"
    LATENCY = "latency"
    CRASHES = "crashes"
    ERRORS = "errors"
    UNTRUSTED = "untrusted"
    DAMAGED = "damaged"
    INCOMPATIBLE = "incompatible"
    NO_SPACE = "no-space"
    SUPERSEDED = "superseded"
    WITHDRAWN = "withdrawn"


class TrialTerms(Frozen):
    """What a device holds the offered model to, beside the one that it runs.

    - `examples`: so many of its own examples, at most, are run through both models;
    - `accuracy_drop`: the share of them that the new model may get wrong beyond the old one;
    - `latency_ratio`: how many times as long it may take for one image;
    - `error_rate`: the share of requests that may fail beyond the old one's, while it is watched;
    - `crashes`: how often what serves it may crash while it is watched;
    - `watch_s`: how long it is watched after the switch before it is kept.
    """

    examples: int = Field(default=200, ge=0, le=10_000)
    accuracy_drop: Fraction = 0.02
    latency_ratio: float = Field(default=1.5, ge=1, le=1000)
    error_rate: Fraction = 0.01
    crashes: int = Field(default=0, ge=0, le=1000)
    watch_s: Seconds = 300.0


class ModelMeasurement(Frozen):
    """One model on a device's own examples: accuracy on so many of them, milliseconds for one image."""

    examples: Count = 0
    accuracy: Fraction | None = None
    latency_ms: Milliseconds
