"""What a run leaves for people and programs: a line per round, a line per device, a summary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from schemas.frozen import Frozen


class Rejected(Frozen):
    """A device whose update was refused, and why."""

    device: str
    reason: str


class RoundRecord(Frozen):
    """One line of `history.jsonl`. Bytes are MQTT payload bytes at the server; accuracies are 0 to 1.

    `test_*` are the server's, on its own test data; `client_accuracy` is the devices' mean on theirs. In a
    simulation `duration_s` is virtual time, and `virtual_time_s` is how much of it the run has taken so far.
    `staleness` is, for the updates of buffered rounds that came late, by how many rounds. With differential
    privacy `epsilon` is what all rounds so far have spent at `delta`, and `clip` this round's L2 bound.
    """

    round: int
    fraction: float
    local_epochs: int
    selected: tuple[str, ...]
    completed: tuple[str, ...]
    dropped: tuple[str, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    uplink_bytes: int
    downlink_bytes: int
    duration_s: float
    virtual_time_s: float | None = None
    train_loss: float | None = None
    test_loss: float | None = None
    test_accuracy: float | None = None
    tier_accuracy: Mapping[int, float] = Field(default_factory=dict)
    client_accuracy: float | None = None
    staleness: Mapping[str, int] = Field(default_factory=dict)
    weights: Mapping[str, float] = Field(default_factory=dict)
    attention: Mapping[str, Any] = Field(default_factory=dict)
    epsilon: float | None = None
    delta: float | None = None
    clip: float | None = None


class DeviceRecord(Frozen):
    """What became of a device: its tier, its compact model, its bytes, its accuracies on held-out data.

    It serves its model as that `variant`, and says `why`. `refused` counts its `refusals` by reason;
    `quarantined_until` is the last round that it is left out of.
    """

    device: str
    tier: int
    ratio: float
    parameters: int | None = None
    macs: int | None = None
    onnx_bytes: int | None = None
    downlink_bytes: int = 0
    uplink_bytes: int = 0
    examples: int = 0
    torch_accuracy: float | None = None
    onnx_accuracy: float | None = None
    max_difference: float | None = None
    latency_ms: float | None = None
    variant: str | None = None
    variant_accuracy: float | None = None
    why: str | None = None
    rounds: int = 0
    refusals: int = 0
    refused: Mapping[str, int] = Field(default_factory=dict)
    quarantined_until: int | None = None


class Summary(Frozen):
    """`summary.json`: how the run ended and what came of it."""

    federation: str
    run: str
    recipe: str | None
    outcome: str
    detail: str = ""
    rounds: int
    duration_s: float
    model: str
    parameters: int
    test_accuracy: float | None = None
    best_accuracy: float | None = None
    uplink_bytes: int = 0
    downlink_bytes: int = 0
    epsilon: float | None = None
    delta: float | None = None
    devices: tuple[DeviceRecord, ...] = ()
    onnx: Mapping[int, str] = Field(default_factory=dict)
