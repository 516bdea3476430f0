"""An answer to a round of statistics is refused unless some data has these sums."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from edge_client.data.statistics import statistics_of
from edge_server.coordinator.validation.data_statistics import answer_numbers, examine_statistics
from edge_server.strategy.aggregation.updates import ClientUpdate
from edge_server.strategy.data_statistics import next_request, pool_statistics
from schemas.errors import PeerError, Reason
from schemas.statistics import StatisticsRequest
from schemas.submodel import SubModelSpec
from schemas.values import ModelSpec
from tests.edge_client.data.tasks.examples import FEATURES, examples
from tests.edge_server.coordinator.validation.test_firewall import task, update

OUTPUTS = {"classification": 4, "multi-label": 2, "regression": 2, "anomaly": 6}
Answer = dict[str, dict[str, Any]]


def asked(kind: str) -> tuple[Any, StatisticsRequest, Answer]:
    """A task of the second round, its request, and an honest answer with 40 examples."""
    data, model = (
        examples(kind),
        ModelSpec(name="mlp", input_shape=(FEATURES,), num_classes=OUTPUTS[kind], task=kind),
    )
    first = statistics_of(data, StatisticsRequest(), outputs=model.num_classes)
    known = pool_statistics([ClientUpdate("a", SubModelSpec(), first, 40)], StatisticsRequest(), {"a": 1.0})
    request = next_request(known, StatisticsRequest())
    return (
        task(spec=SubModelSpec(), model=model, statistics=request),
        request,
        statistics_of(data, request, outputs=model.num_classes),
    )


def examined(kind: str, change: Callable[[Answer], object] = lambda _: None, count: int = 40) -> None:
    given, request, answer = asked(kind)
    change(answer)
    claimed = update(SubModelSpec())
    metrics = claimed.metrics.model_copy(update={"examples": count, "epochs": 0, "steps": 0})
    examine_statistics(claimed.model_copy(update={"metrics": metrics}), answer, given, request)


@pytest.mark.parametrize("kind", OUTPUTS)
def test_an_honest_answer_is_accepted(kind: str) -> None:
    examined(kind)
    _, request, answer = asked(kind)
    sent = sum(array.size for arrays in answer.values() for array in arrays.values())
    assert (
        answer_numbers(
            request, ModelSpec(name="mlp", input_shape=(FEATURES,), num_classes=OUTPUTS[kind], task=kind)
        )
        == sent
    )


def put(group: str, name: str, value: float, place: Any = 0) -> Callable[[Answer], object]:
    return lambda answer: answer[group][name].__setitem__(place, value)


HOSTILE = {
    "not a number": (put("features", "sum", np.nan), Reason.NOT_FINITE),
    "infinite": (put("features", "most", np.inf), Reason.NOT_FINITE),
    "another group": (lambda answer: answer.update(model={}), Reason.WRONG_SHAPE),
    "no labels": (lambda answer: answer.pop("labels"), Reason.WRONG_SHAPE),
    "too few features": (
        lambda answer: answer["features"].update(sum=answer["features"]["sum"][1:]),
        Reason.WRONG_SHAPE,
    ),
    "float32": (
        lambda answer: answer["features"].update(sum=answer["features"]["sum"].astype(np.float32)),
        Reason.WRONG_SHAPE,
    ),
    "another count": (put("features", "count", 41), Reason.OUT_OF_BOUNDS),
    "a negative count": (put("features", "histogram", -1.0, (0, 3)), Reason.OUT_OF_BOUNDS),
    "half a value": (put("features", "histogram", 0.5, (0, 3)), Reason.OUT_OF_BOUNDS),
    "a value too many": (put("features", "histogram", 40.0, (0, 3)), Reason.OUT_OF_BOUNDS),
    "a mean out of range": (put("features", "sum", 1e6), Reason.OUT_OF_BOUNDS),
    "least above most": (put("features", "least", 1e3), Reason.OUT_OF_BOUNDS),
    "a negative variance": (put("features", "squares", -1.0), Reason.OUT_OF_BOUNDS),
    "too large a variance": (put("features", "squares", 1e6), Reason.OUT_OF_BOUNDS),
    "beyond float32": (put("features", "most", 1e39), Reason.OUT_OF_BOUNDS),
    "a negative label count": (put("labels", "count", -1.0), Reason.OUT_OF_BOUNDS),
    "a label too many": (put("labels", "count", 1000.0), Reason.OUT_OF_BOUNDS),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_answer_is_refused(name: str) -> None:
    change, reason = HOSTILE[name]
    with pytest.raises(PeerError) as refused:
        examined("classification", change)
    assert refused.value.reason == reason


def test_no_examples_and_labels_of_fewer_are_refused() -> None:
    with pytest.raises(PeerError, match="no example"):
        examined("anomaly", count=0)
    with pytest.raises(PeerError, match="does not count the labels"):
        examined("multi-label", put("labels", "count", 41.0))
