"""Differential privacy in a run; where it is off, nothing changes."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import replace

from edge_server.config.config import Config
from edge_server.storage.records import RoundRecord
from edge_server.strategy.privacy import mechanism as dp
from edge_server.strategy.privacy.noise import KEY_BYTES
from edge_server.strategy.strategy import Plan, State


def repeatable_secret(seed: int) -> bytes:
    """The secret of a simulation, whose data is nobody's: whoever knows the seed can take the noise away."""
    return hashlib.sha256(f"simulated noise {seed}".encode()).digest()[:KEY_BYTES]


class PrivacyGuard:
    """Keeps the mechanism's part of the strategy's state; without a mechanism it changes nothing."""

    def __init__(self, config: Config, mechanism: dp.Gaussian | None) -> None:
        self._settings, self._mechanism = config.privacy, mechanism

    @property
    def on(self) -> bool:
        """Whether there is a mechanism."""
        return self._mechanism is not None

    def opened(self, state: State, secret: bytes | None) -> State:
        """The state before round one; a state that goes on keeps its secret and what it has spent."""
        if self._mechanism is None or state.privacy is not None:
            return state
        drawn = secrets.token_bytes(KEY_BYTES) if secret is None else secret
        return replace(state, privacy=dp.initial_state(self._mechanism, drawn))

    def entropy(self, state: State) -> list[int]:
        """What the choice of clients depends on beside the seed, which others may know."""
        if self._mechanism is None:
            return []
        secret = bytes.fromhex(_opened(state)["secret"])
        return [int.from_bytes(hashlib.blake2b(b"choice", key=secret, digest_size=16).digest())]

    def planned(self, state: State, plan: Plan, *, population: int) -> State:
        """The state that knows whom the next round asks, chosen of so many."""
        if self._mechanism is None:
            return state
        cuts = [assignment.cut for assignment in plan.assignments.values()]
        known = dp.with_plan(_opened(state), state.round + 1, cuts, needed=plan.needed, population=population)
        return replace(state, privacy=known)

    def over_budget(self, state: State) -> str:
        """Why the planned round must not begin; empty where it may."""
        return "" if self._mechanism is None else dp.over_budget(self._mechanism, _opened(state))

    def released(self, record: RoundRecord) -> RoundRecord:
        """The record without what devices measured on their own data: no noise covers it."""
        if self._mechanism is None or self._settings.release_metrics:
            return record
        return record.model_copy(update={"train_loss": None, "client_accuracy": None})

    def provenance(self, state: State) -> Mapping[str, str]:
        """What a model says of the privacy of those who trained it."""
        return {} if self._mechanism is None else dp.provenance(self._mechanism, _opened(state))


def _opened(state: State) -> dp.PrivacyState:
    assert state.privacy is not None
    return state.privacy
