"""Tests a device's new examples for drift, with the model that the device serves if there is one."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edge_client.data import drift
from edge_client.data.dataset import LabelledData, sample
from edge_client.data.local import LocalData
from edge_client.data.tasks import labels as conversion
from edge_client.data.tasks.registry import losses_of
from edge_client.inference.installed_model import served_model_path
from schemas.errors import ConfigError
from schemas.values import DriftFinding

if TYPE_CHECKING:
    from edge_client.inference.onnx_model import LoadedModel

log = logging.getLogger(__name__)

MAX_EXAMPLES = 500  # Examples of each side of a comparison


@dataclass(frozen=True)
class DriftMonitor:
    """Compares new examples, `least` or more at a time, with those that were there at the last training.

    The outputs of the model in `models` for new examples are compared with those for held-out ones, on which
    it was not trained either. `alarm_rate` is the share of tests that may raise a false alarm.
    """

    models: Path
    least: int = 50
    alarm_rate: float = 0.01

    def __call__(self, data: LocalData, record: drift.ExampleRecord) -> drift.DriftResult | None:
        """The outcome for the examples that no test has compared; None while there are too few.

        The sides of `record` are those of `data`, in its order.
        """
        marks = (record.train, record.held)
        is_fresh, is_new = [record.is_untested(m) for m in marks], [record.is_new(m) for m in marks]
        fresh = _join_chosen(data, is_fresh)
        known = _join_chosen(data, [~new for new in is_new])
        if min(len(fresh), len(known)) < self.least:
            return None
        pairs = _pair_values(drift.feature_statistics(known.images), drift.feature_statistics(fresh.images))
        unseen = data.held_out.subset(np.flatnonzero(~is_new[1]))
        if len(unseen) >= self.least:
            pairs |= self._of_model(unseen, fresh)
        name, p = drift.most_different(pairs)
        finding = DriftFinding(statistic=name, p_value=p, examples=len(fresh))
        tested = np.concatenate([m[new] for m, new in zip(marks, is_fresh, strict=True)])
        return drift.DriftResult(tested, finding if p <= self.alarm_rate else None)

    def _of_model(
        self, known: LabelledData, fresh: LabelledData
    ) -> dict[str, tuple[drift.Values, drift.Values]]:
        """Losses and confidences of the served model; none without a model that takes these examples."""
        path = served_model_path(self.models)
        if not path.exists():
            return {}
        from edge_client.inference.onnx_model import load_model

        try:
            model = load_model(path, threads=1)
            return _pair_values(model_statistics(model, known), model_statistics(model, fresh))
        except ConfigError as error:
            log.info("drift is looked for without the served model: %s", error)
            return {}


def _join_chosen(data: LocalData, chosen: Sequence[drift.Chosen]) -> LabelledData:
    """The chosen examples of both parts, at most `MAX_EXAMPLES`, drawn by a fixed seed."""
    parts = [
        part.subset(np.flatnonzero(own))
        for part, own in zip((data.train, data.held_out), chosen, strict=True)
    ]
    images, labels = (np.concatenate([getattr(p, name) for p in parts]) for name in ("images", "labels"))
    sizes = [part.sizes for part in parts if part.sizes is not None]
    joined = np.concatenate(sizes) if len(sizes) == len(parts) else None
    return sample(replace(parts[0], images=images, labels=labels, sizes=joined), MAX_EXAMPLES)


def _pair_values(
    known: dict[str, drift.Values], fresh: dict[str, drift.Values]
) -> dict[str, tuple[drift.Values, drift.Values]]:
    return {name: (known[name], fresh[name]) for name in known}


def model_statistics(model: "LoadedModel", data: LabelledData) -> dict[str, drift.Values]:
    """The loss [N] of each example, and of a classifier its confidence [N]."""
    taken = conversion.in_task(model.fit(data), model.task.name, model.preprocessing.class_names)
    answers = model.answers(taken.images, taken.labels)
    found = {"loss": losses_of(model.task)(answers.outputs, answers.targets)}
    if model.task.is_ranked:
        found["confidence"] = model.task.answers(answers.outputs, answers.outputs).max(1)
    return found
