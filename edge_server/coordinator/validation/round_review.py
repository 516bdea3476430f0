"""The review of all updates of a round together, when it is closed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from edge_server.strategy.aggregation.updates import ClientUpdate
from schemas.messages import Update
from schemas.values import Reason, TrainingMetrics

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
