"""Apps made of a `client_fn`, which use Flower's older messages inside the newer ones."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import Message, RecordDict
from flwr.common import EvaluateIns, FitIns, ndarrays_to_parameters, parameters_to_ndarrays

from edge_client.training.flower.messages import Answer, Arrays, FlowerError, addressed, checked


def legacy_question(action: str, state: Arrays, config: Mapping[str, Any], *, run: str, node: str) -> Message:
    """`FitIns` or `EvaluateIns` as a message, with the parameters in the order of the state dict."""
    parameters = ndarrays_to_parameters([np.asarray(array) for array in state.values()])
    if action == "train":
        content: RecordDict = _compat().fitins_to_recorddict(FitIns(parameters, dict(config)), True)
    else:
        content = _compat().evaluateins_to_recorddict(EvaluateIns(parameters, dict(config)), True)
    return addressed(action, content, run=run, node=node, round_number=int(config["server-round"]))


def legacy_answer(action: str, reply: Message, sent: Arrays) -> Answer:
    """The answer in a `FitRes` or `EvaluateRes` message; raises `FlowerError` for an unusable one."""
    if reply.has_error():
        raise FlowerError(f"the app answered with error {reply.error.code}: {reply.error.reason}")
    if action == "evaluate":
        result = _compat().recorddict_to_evaluateres(reply.content)
        return Answer(
            {}, {**_numbers(result.metrics), "num-examples": result.num_examples, "loss": result.loss}
        )
    result = _compat().recorddict_to_fitres(reply.content, True)
    given = {str(index): array for index, array in enumerate(parameters_to_ndarrays(result.parameters))}
    return Answer(checked(given, sent), {**_numbers(result.metrics), "num-examples": result.num_examples})


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items() if isinstance(value, int | float)}


def _compat() -> Any:
    """Flower's module that converts between old and new messages, whose place depends on the release."""
    try:
        from flwr.compat.common import recorddict_compat
    except ImportError:
        try:
            from flwr.common import recorddict_compat
        except ImportError:
            raise FlowerError("this Flower takes no apps made of a client_fn: use @app.train()") from None
    return recorddict_compat
