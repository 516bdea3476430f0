"""A version in the registry: its origin, the file of each tier, its signer."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from edge_server.storage.records import StartedFrom
from schemas.base import Digest, Frozen, Name
from schemas.values import Fraction, Metrics

Milliseconds = Annotated[float, Field(ge=0)]


class TierModel(Frozen):
    """One tier's ONNX file. `test_accuracy` and `test_metrics` are the server's, `devices` measured the means
    of the devices; metrics have all figures of the task, the leading one first.

    `devices_serving` of them serve it, the others kept their earlier model; None if unknown.
    `parent_sha256` is the state of the global model that it was cut from.
    """

    tier: int = Field(ge=1)
    ratio: float = Field(ge=0, lt=1)
    sha256: Digest
    bytes: int = Field(ge=1)
    parent_sha256: Digest | None = None
    spec_sha256: Digest | None = None
    parameters: int | None = None
    macs: int | None = None
    test_accuracy: Fraction | None = None
    test_metrics: Metrics = Field(default_factory=dict, exclude_if=lambda found: not found)
    devices: int = Field(default=0, ge=0)
    devices_serving: int | None = Field(default=None, ge=0)
    device_accuracy: Fraction | None = None
    device_metrics: Metrics = Field(default_factory=dict, exclude_if=lambda found: not found)
    device_latency_ms: Milliseconds | None = None


class Version(Frozen):
    """The result of a run: the global model after `round`, and a file for each tier.

    `state_sha256` is the global model's digest, `parents` those of earlier models, the nearest first. `key`
    is the fingerprint of the key that signed every tier's file; None if a file is not signed. `started_from`
    names the model that the run began with, unless it began with a new network. `created_at` is in seconds
    since 1970; `device_tiers` are the tiers that the run's devices trained last.
    """

    version: Name
    federation: Name
    run: Name
    round: int = Field(ge=0)
    rounds: int = Field(ge=0)
    outcome: str
    recipe: str | None = None
    model: str
    parameters: int
    state_sha256: Digest | None = None
    parents: tuple[Digest, ...] = ()
    key: Digest | None = None
    test_accuracy: Fraction | None = None
    test_metrics: Metrics = Field(default_factory=dict, exclude_if=lambda found: not found)
    epsilon: float | None = None
    delta: float | None = None
    created_at: float
    tiers: tuple[TierModel, ...]
    device_tiers: Mapping[Name, Annotated[int, Field(ge=1)]] = {}
    started_from: StartedFrom | None = None

    def tier(self, number: int) -> TierModel | None:
        return next((tier for tier in self.tiers if tier.tier == number), None)
