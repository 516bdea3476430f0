"""Simulated devices with false births, false measurements and false groups."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_server.simulation import simulator
from edge_server.simulation.client_work import ClientJob, Outcome, WorkSetup
from edge_server.simulation.device import DeviceEdge
from edge_server.storage.records import Summary
from schemas.messages import Update, decode_message, encode_message
from schemas.values import TrainingMetrics
from tests.edge_server.simulation.in_process import InProcess
from tests.edge_server.simulation.small import run
from tests.groups import encode_groups, read_groups

Sent = dict[str, dict[str, Any]]
"""The groups of an update, which lies change in place."""

LIAR = "device-0004"


@dataclass(frozen=True)
class Lie:
    """False statements of one device: fields of its data card, profile and metrics, and groups.

    `groups` changes the arrays of a trained update. A `silent` device fails every task.
    """

    card: Mapping[str, Any] = field(default_factory=dict)
    profile: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    groups: Callable[[Sent], None] | None = None
    silent: bool = False


SILENT = Lie(silent=True)


class LyingEngine(InProcess):
    """An engine that changes what lying devices answer."""

    def __init__(self, setup: WorkSetup, lies: Mapping[str, Lie]) -> None:
        super().__init__(setup)
        self._lies = lies

    def result(self, handle: ClientJob, *, timeout_s: float) -> Outcome | None:
        lie = self._lies.get(handle.device)
        if lie is not None and lie.silent:
            return Outcome(None)
        outcome = super().result(handle, timeout_s=timeout_s)
        if lie is None or lie.groups is None or outcome is None or outcome.answer is None:
            return outcome
        update = decode_message(outcome.answer.encode())
        assert isinstance(update, Update)
        groups = read_groups(self.store.blob_path(update.blob.digest))
        lie.groups(groups)
        changed = update.model_copy(update={"blob": self.store.put_blob(encode_groups(groups))})
        return Outcome(encode_message(changed).decode())


class LyingEdge(DeviceEdge):
    """A device whose birth and measurements are false."""

    lie: Lie

    def in_virtual_time(self, answer: str) -> Any:
        result = super().in_virtual_time(answer)
        if not isinstance(result, Update):
            return result
        # Validated like a received message.
        false_metrics = TrainingMetrics.model_validate({**result.metrics.model_dump(), **self.lie.metrics})
        return result.model_copy(update={"metrics": false_metrics})


def run_with(
    monkeypatch: pytest.MonkeyPatch, out: Path, recipe: str, *words: str, lies: Mapping[str, Lie]
) -> Summary:
    """Simulate a recipe in which these devices lie; updates are float32 unless `words` say otherwise."""
    edges = simulator.make_edges

    def lying(*args: Any) -> dict[str, DeviceEdge]:
        made = edges(*args)
        for name, lie in lies.items():
            edge = made[name]
            edge.__class__ = LyingEdge
            edge.lie = lie  # type: ignore[attr-defined]
            edge.card = type(edge.data).model_validate({**edge.data.model_dump(), **lie.card})
            profile = edge.profile.model_dump(exclude_unset=True)
            edge.profile = type(edge.profile).model_validate({**profile, **lie.profile})
        return made

    with monkeypatch.context() as patched:
        patched.setattr(simulator, "make_edges", lying)
        return run(out, recipe, "strategy.uplink=[]", *words, engine=partial(LyingEngine, lies=lies))


def filled(value: float, *, group: str, name: str = "") -> Callable[[Sent], None]:
    """Set every number of a group's arrays, or of those whose names end in `name`, to `value`."""

    def change(groups: Sent) -> None:
        for known, array in groups.get(group, {}).items():
            if known.endswith(name):
                groups[group][known] = np.full(array.shape, value, np.float32)

    return change
