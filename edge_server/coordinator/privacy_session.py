"""Differential privacy in a run; where it is off, nothing changes."""

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from edge_server.config.config import Config
from edge_server.storage.records import RoundRecord
from edge_server.strategy.privacy import mechanism as dp
from edge_server.strategy.privacy.noise import KEY_BYTES
from edge_server.strategy.strategy import Plan, State


def repeatable_secret(seed: int) -> bytes:
    """The secret of a simulation. The seed reveals the noise, which is acceptable for simulated devices."""
    return hashlib.sha256(f"simulated noise {seed}".encode()).digest()[:KEY_BYTES]


class PrivacyGuard:
    """Keeps the part of the strategy's state that belongs to the mechanism; does nothing without one."""

    def __init__(self, config: Config, mechanism: dp.Gaussian | None) -> None:
        self._settings, self._mechanism = config.privacy, mechanism

    @property
    def on(self) -> bool:
        return self._mechanism is not None

    def start_privacy(self, state: State, secret: bytes | None) -> State:
        """The state before round one; a resumed state keeps its secret and the privacy that it has spent."""
        if self._mechanism is None or state.privacy is not None:
            return state
        drawn = secrets.token_bytes(KEY_BYTES) if secret is None else secret
        return replace(state, privacy=dp.initial_state(self._mechanism, drawn))

    def entropy(self, state: State) -> list[int]:
        """The secret part of the seed for choosing clients, as others may know the configured seed."""
        if self._mechanism is None:
            return []
        secret = bytes.fromhex(_privacy_of(state)["secret"])
        return [int.from_bytes(hashlib.blake2b(b"choice", key=secret, digest_size=16).digest())]

    def with_plan(self, state: State, plan: Plan, *, population: int) -> State:
        """The state with the clients of the next round, which were chosen from a `population`."""
        if self._mechanism is None:
            return state
        cuts = [assignment.cut for assignment in plan.assignments.values()]
        known = dp.with_plan(
            _privacy_of(state), state.round + 1, cuts, needed=plan.needed, population=population
        )
        return replace(state, privacy=known)

    def over_budget(self, state: State) -> str:
        """Why the planned round must not begin; empty if it may."""
        return "" if self._mechanism is None else dp.over_budget(self._mechanism, _privacy_of(state))

    def strip_own_metrics(self, record: RoundRecord) -> RoundRecord:
        """The record without the devices' own metrics, which no noise protects."""
        if self._mechanism is None or self._settings.release_metrics:
            return record
        names = ("client_metrics", "own_metrics", "measured", "trained_accuracy", "dead_channels")
        update: dict[str, Any] = {name: {} for name in names} | {"one_answer": ()}
        return record.model_copy(update=update | dict.fromkeys(("train_loss", "client_accuracy")))

    def provenance(self, state: State) -> Mapping[str, str]:
        """The privacy guarantee of a model, for its provenance."""
        return {} if self._mechanism is None else dp.provenance(self._mechanism, _privacy_of(state))


def _privacy_of(state: State) -> dp.PrivacyState:
    assert state.privacy is not None
    return state.privacy
