"""Flower's messages to an app, newer and older, and its checked answers."""

import hashlib
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, Metadata, RecordDict
from flwr.common import EvaluateIns, FitIns, ndarrays_to_parameters, parameters_to_ndarrays
from numpy.typing import NDArray

from schemas.errors import EdgeError

TTL_S = 12 * 3600.0
EXAMPLES = ("num-examples", "num_examples")
LOSSES = {"train": ("train_loss", "train-loss", "loss"), "evaluate": ("eval_loss", "eval-loss", "loss")}
ACCURACIES = ("eval_acc", "eval_accuracy", "eval-accuracy", "accuracy", "acc", "test_accuracy")
Arrays = Mapping[str, NDArray[Any]]


class FlowerError(EdgeError):
    """An app failed, or gave an unusable answer."""


@dataclass(frozen=True, eq=False)
class Answer:
    """An app's arrays, if any, in the order of the state dict, and its figures."""

    arrays: Arrays
    figures: Mapping[str, float]

    @property
    def examples(self) -> int:
        """Number of examples that the app used; raises `FlowerError` if it is missing."""
        count = next((self.figures[name] for name in EXAMPLES if name in self.figures), None)
        if count is None or not math.isfinite(count) or not 0 <= count <= 10**12:
            raise FlowerError(f"the app's reply has no usable num-examples (it has {sorted(self.figures)})")
        return int(count)

    def loss(self, action: str) -> float | None:
        """The reported loss, if finite."""
        return self._first(LOSSES[action])

    @property
    def accuracy(self) -> float | None:
        """The reported accuracy, if between 0 and 1."""
        reported = self._first(ACCURACIES)
        return reported if reported is not None and 0 <= reported <= 1 else None

    def _first(self, names: Sequence[str]) -> float | None:
        reported = next((self.figures[name] for name in names if name in self.figures), None)
        return reported if reported is not None and math.isfinite(reported) else None


def number_of(name: str) -> int:
    """A number for a run or node as Flower uses them: 63 bits of the name's digest."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) >> 1


def question(action: str, state: Arrays, config: Mapping[str, Any], *, run: str, node: str) -> Message:
    """The message `train` or `evaluate` with the records `arrays` and `config`, as Flower sends it."""
    record = ArrayRecord({name: Array(np.asarray(array, order="C")) for name, array in state.items()})
    content = RecordDict({"arrays": record, "config": ConfigRecord(dict(config))})
    return make_message(action, content, run=run, node=node, round_number=int(config["server-round"]))


def make_message(action: str, content: RecordDict, *, run: str, node: str, round_number: int) -> Message:
    """A message from a nominal server (node 1)."""
    metadata = Metadata(
        run_id=number_of(run),
        message_id=f"{run}-{round_number}-{action}",
        src_node_id=1,
        dst_node_id=number_of(node),
        reply_to_message_id="",
        group_id=str(round_number),
        created_at=time.time(),
        ttl=TTL_S,
        message_type=action,
    )
    return Message(metadata=metadata, content=content)


def answer_of(reply: Any, sent: Arrays) -> Answer:
    """The answer in a reply; raises `FlowerError` for an error, or arrays that are not the model's."""
    if not isinstance(reply, Message):
        raise FlowerError(f"the app returned {type(reply).__name__}, not a Message")
    content, figures = _content_of(reply), dict[str, float]()
    for record in content.metric_records.values():
        figures |= _numbers(record)
    records = content.array_records
    if not records:
        return Answer({}, figures)
    name = "arrays" if "arrays" in records else next(iter(records))
    if len(records) > 1 and name != "arrays":
        raise FlowerError(
            f"the app's reply has the array records {sorted(records)}: call the model's 'arrays'"
        )
    given = {key: array.numpy() for key, array in records[name].items()}
    return Answer(_checked_arrays(given, sent), figures)


def _content_of(reply: Message) -> RecordDict:
    if reply.has_error():
        raise FlowerError(f"the app answered with error {reply.error.code}: {reply.error.reason}")
    return reply.content


def _checked_arrays(given: Arrays, sent: Arrays) -> Arrays:
    """The arrays under the sent names, floats as float32; raises `FlowerError` for other arrays.

    A list of arrays (`to_numpy_ndarrays`) has numbers as names and is matched by order.
    """
    if given.keys() != sent.keys() and len(given) == len(sent) and all(name.isdecimal() for name in given):
        given = dict(zip(sent, given.values(), strict=True))
    if missing := [name for name in sent if name not in given]:
        raise FlowerError(f"the app's reply lacks {_few(missing)}: send the whole state dict back")
    if strange := [name for name in given if name not in sent]:
        raise FlowerError(f"the app's reply has arrays of no such name: {_few(strange)}")
    return {name: _check_array(name, given[name], array) for name, array in sent.items()}


def _check_array(name: str, given: NDArray[Any], sent: NDArray[Any]) -> NDArray[Any]:
    if given.shape != sent.shape:
        raise FlowerError(
            f"array {name!r}: {sent.shape} was sent, {given.shape} came back: build the model for the "
            "received shapes, or give this device a tier that prunes nothing"
        )
    if not np.issubdtype(sent.dtype, np.floating):
        return sent
    if not np.issubdtype(given.dtype, np.floating):
        raise FlowerError(f"array {name!r}: numbers of type {given.dtype} came back for {sent.dtype}")
    made = given.astype(np.float32, copy=False)
    if not np.isfinite(made).all():
        raise FlowerError(f"array {name!r} is not finite after the app's training")
    return made


def _few(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


# Apps made of a `client_fn` use older messages inside the newer ones.


def legacy_question(action: str, state: Arrays, config: Mapping[str, Any], *, run: str, node: str) -> Message:
    """`FitIns` or `EvaluateIns` as a message, with the parameters in the order of the state dict."""
    parameters = ndarrays_to_parameters([np.asarray(array) for array in state.values()])
    if action == "train":
        content: RecordDict = _compat().fitins_to_recorddict(FitIns(parameters, dict(config)), True)
    else:
        content = _compat().evaluateins_to_recorddict(EvaluateIns(parameters, dict(config)), True)
    return make_message(action, content, run=run, node=node, round_number=int(config["server-round"]))


def legacy_answer(action: str, reply: Message, sent: Arrays) -> Answer:
    """The answer in a `FitRes` or `EvaluateRes` message; raises `FlowerError` for an unusable one."""
    content = _content_of(reply)
    if action == "evaluate":
        result = _compat().recorddict_to_evaluateres(content)
        return Answer(
            {}, {**_numbers(result.metrics), "num-examples": result.num_examples, "loss": result.loss}
        )
    result = _compat().recorddict_to_fitres(content, True)
    given = {str(index): array for index, array in enumerate(parameters_to_ndarrays(result.parameters))}
    return Answer(
        _checked_arrays(given, sent), {**_numbers(result.metrics), "num-examples": result.num_examples}
    )


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
