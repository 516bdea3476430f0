"""Who a device is and how it takes part."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from edge_client.agent.eligibility.rules import Rules
from edge_client.inference.quantization.selection import ALL, Wish
from edge_client.security.trusted_key import TrustedKey
from edge_client.training.checkpoints import INTERVAL_S
from edge_client.transport.broker_address import BrokerAddress
from schemas.values import CapabilityProfile

if TYPE_CHECKING:
    from edge_client.training.trainer import LocalWork


@dataclass(frozen=True)
class AgentSettings:
    """Who this device is and how it takes part; `once`: end with the first run that it took part in.

    `checkpoint_s` is the shortest time between two checkpoints of a training.
    `wish`: which variants of its finished model are tried. So often it says where it is, in seconds
    (`telemetry_every_s`), beside what it says of its work; 0: never.
    `only_masked`: no update leaves this device that the server could read by itself. `eligibility` says when
    it may train. `work` trains instead of this package (`local_work`). One that is to
    `keep_trying` never gives up on its broker, whatever that says.
    """

    federation: str
    device: str
    address: BrokerAddress
    state: Path
    source: str
    profile: CapabilityProfile
    once: bool = False
    threads: int | None = None
    model_code: frozenset[str] = frozenset()
    trust: TrustedKey | None = None
    checkpoint_s: float = INTERVAL_S
    only_masked: bool = False
    wish: Wish = ALL
    telemetry_every_s: float = 30.0
    eligibility: Rules = field(default_factory=Rules)
    work: LocalWork | None = None
    keep_trying: bool = False
