"""The source `python:module:function`: the examples that a user's own function returns."""

import inspect
import traceback
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from edge_client.data.arrays import examples
from edge_client.data.classes import are_numbers
from edge_client.data.dataset import LabelledData
from edge_client.data.validation import checked_images, checked_labels
from edge_client.system import user_code
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from edge_client.data.sources import SourceRequest


def read_function(request: "SourceRequest") -> LabelledData:
    """What the function returns; its errors are the user's to repair."""
    named = f"data source python:{request.argument}"
    function: Any = user_code.users_function(request.argument, what=named)
    offered = {"split": request.split, "data_root": request.data_root}
    given = {name: value for name, value in offered.items() if name in _parameters(function)}
    try:
        value = function(**given)
    except ConfigError:
        # It names its remedy itself.
        raise
    except user_code.FAILS as error:
        # The user's own code may fail in any way.
        why, clash = f"{named} failed with {failure_of(error)}", user_code.hidden_by_ours(error)
        raise ConfigError(f"{why}{clash}", quoted="" if clash else repr(error)) from error
    return request.of(_examples(value, f"python:{request.argument}"), official="split" in given)


def failure_of(error: BaseException) -> str:
    """The kind of an error and its line; its text may quote the data."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" in {frames[-1].filename} line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{place}"


def _parameters(function: Any) -> Collection[str]:
    """The names of a user's function's parameters; none if they cannot be found."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return ()


def _examples(value: Any, source: str) -> LabelledData:
    where = f"{source}: labels"
    if isinstance(value, LabelledData):
        images = checked_images(value.images, f"{source}: images")
        labels = checked_labels(value.labels, where, images=len(images), class_names=value.class_names)
        # Words are names, whatever a function says of them.
        named = value.named or (labels.ndim == 1 and not are_numbers(value.class_names))
        return replace(value, labels=labels, named=named)
    try:
        images, labels = (np.asarray(part) for part in value)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"data source {source} returned {type(value).__name__}, expected (images, labels) or LabelledData"
        ) from error
    images = checked_images(images, f"{source}: images")
    return examples(images, checked_labels(labels, where, images=len(images)), source)
