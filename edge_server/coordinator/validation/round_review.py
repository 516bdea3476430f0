"""The review of all updates of a round together, when it is closed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from edge_client.data.tasks.learning_task import LearningTask
from edge_server.strategy.aggregation.updates import ClientUpdate, to_global
from schemas.errors import PeerError, Reason
from schemas.messages import Update
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.arrays import Arrays
from schemas.values import TrainingMetrics

SAMPLES = 500  # Most test examples that the canary uses

Test = Callable[[Arrays, SubModelSpec], Mapping[str, float]]
"""From the global arrays and a sub-model to the figures of the learning task."""


class Canary:
    """Compares the leading metric with and without an update, in the update's own sub-model.

    In the full model an honest update of a small sub-model may look harmful, since the channels that it lacks
    have not moved. The metric without an update is computed once per sub-model and model version. What an
    update may cost is a difference of shares, such as accuracies, or relative to other figures.
    """

    def __init__(self, test: Test, task: LearningTask, allowed: float) -> None:
        self._test, self._task, self._allowed = test, task, allowed
        self._round = -1
        self._known: dict[str, Mapping[str, float]] = {}

    def check(self, update: ClientUpdate, params: Arrays, channel_map: ChannelMap, round_number: int) -> None:
        """Raise `PeerError` if the update alone makes the model of the round worse than allowed."""
        self.check_moved(update.spec, to_global(update, channel_map).delta, params, round_number)

    def check_moved(self, spec: SubModelSpec, moved: Arrays, params: Arrays, round_number: int) -> None:
        """As `check`, for the change `moved` of the parameters of a sub-model."""
        if round_number != self._round:
            self._round, self._known = round_number, {}
        key = spec.model_dump_json()
        if key not in self._known:
            self._known[key] = self._test(params, spec)
        before = self._known[key]
        after = self._test({name: params[name] + moved[name] for name in params}, spec)
        metric = self._task.leading(before)
        old, new = before.get(metric.name), after.get(metric.name)
        if old is None or new is None or metric.worsening(old, new) <= self._allowed:
            return
        detail = f"alone it takes {metric.name} from {old:.3f} to {new:.3f}, by more than {self._allowed}"
        raise PeerError(detail, reason=Reason.HARMFUL)


Refusals = Mapping[str, tuple[Reason, str]]  # Reason and words for each refused update, by device


@dataclass(frozen=True)
class RoundReview:
    """The updates that count, with believed metrics; reasons of refusals and exaggerations, by device.

    `harm` is that of `leave_one_out`, by device or site key.
    """

    counted: Mapping[str, Update]
    refused: Refusals
    exaggerated: Mapping[str, str]
    harm: Mapping[str, float] = field(default_factory=dict)


def make_review(
    sent: Mapping[str, Update],
    refused: Refusals,
    harm: Mapping[str, float],
    believed: Sequence[ClientUpdate],
    exaggerated: Mapping[str, str],
) -> RoundReview:
    """The updates that were not `refused`, with the metrics that are `believed`."""
    by_client = {update.client: update for update in believed}
    counted = {
        name: _with_metrics(update, by_client[name]) if name in exaggerated else update
        for name, update in sent.items()
    }
    return RoundReview(counted, refused, exaggerated, harm)


def _with_metrics(update: Update, believed: ClientUpdate) -> Update:
    figures = {
        name: believed.metrics[name] for name in TrainingMetrics.model_fields if name in believed.metrics
    }
    return update.model_copy(update={"metrics": update.metrics.model_copy(update=figures)})
