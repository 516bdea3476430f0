"""Whether what an update says of its own training agrees with its task and with what it brings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edge_client.pruning.lazy_slicing import Excerpt
from edge_server.strategy.groups.rule import GroupRule
from schemas.errors import PeerError
from schemas.messages import TrainTask, Update
from schemas.submodel import ChannelMap
from schemas.tensors.blobs import Arrays, Groups
from schemas.values import Reason

ROUNDING = 1e-5
"""Two numbers that are equal but for float32 differ by at most this share of them."""
VARIANCE = "running_var"


def check_training(update: Update, task: TrainTask) -> None:
    """Raise `PeerError` unless so many examples, in the task's batches and epochs, are that many steps.

    A device whose last batch is too small to be normalised leaves it out.
    """
    plan, said = task.training, update.metrics
    if said.epochs > plan.local_epochs:
        raise _refused(f"{said.epochs} epochs, {plan.local_epochs} were asked for")
    full, rest = divmod(said.examples, plan.batch_size)
    least, most = said.epochs * full, said.epochs * (full + (rest > 0))
    if not least <= said.steps <= most:
        raise _refused(f"{said.steps} steps: {said.examples} examples in {said.epochs} epochs take {most}")


def check_group_values(update: Update, groups: Groups, rules: Sequence[GroupRule]) -> None:
    """Raise `PeerError` for a group that cannot be what its rule has devices measure.

    Attention is a mean of sigmoids (ATTENDING, equations 5 and 6).
    """
    for name, scores in groups.get("attention", {}).items():
        if not bool(((scores >= -ROUNDING) & (scores <= 1 + ROUNDING)).all()):
            raise _refused(f"attention behind '{name}' is not between 0 and 1")
    for rule in rules:
        if rule.name in groups:
            rule.check(groups[rule.name], update.metrics.examples)


def check_variances(
    update: Update, groups: Groups, params: Arrays, channel_map: ChannelMap, *, late: bool = False
) -> None:
    """Raise `PeerError` where a running variance of the device's model is below 0.

    `params` are the global model as it is now. A `late` update (buffered mode) began with another one, whose
    variances are taken to be at most twice as large.
    """
    model = groups["model"]
    names = [name for name in model if name.rpartition(".")[2] == VARIANCE]
    if not names:
        return
    before = Excerpt({name: params[name] for name in names}, update.spec, channel_map)
    for name in names:
        known = np.asarray(before[name], np.float64) * (2 if late else 1)
        after = known + model[name]
        if bool((after < -ROUNDING * np.maximum(known, 1)).any()):
            raise _refused(f"'{name}' has variances below 0")


def _refused(detail: str) -> PeerError:
    return PeerError(detail, reason=Reason.OUT_OF_BOUNDS)
