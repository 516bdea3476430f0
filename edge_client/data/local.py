"""A device's own examples, and their conversion for a task's model."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from edge_client.data import columns, shapes
from edge_client.data.classes import misfit, misfit_of_numbers, numbers
from edge_client.data.pictures.scale import scale_misfit
from schemas import errors, messages
from schemas.errors import ConfigError, PeerError, format_count

if TYPE_CHECKING:
    from edge_client.data.dataset import LabelledData
    from edge_client.data.drift_alarm import DriftAlarm


@dataclass(frozen=True)
class LocalData:
    """A device's own examples: a training part and a held-out part.

    Of data that grows, `new` examples came since the device last trained, and `alarm` is about a drift.
    """

    train: "LabelledData"
    held_out: "LabelledData"
    new: int | None = None
    alarm: "DriftAlarm | None" = None

    def fewer_than_a_batch(self, task: messages.Task) -> str:
        """A message that a task's batches exceed the number of examples; empty if they do not."""
        plan = task.plan
        if plan is None or (count := plan.copies * len(self.train)) >= plan.batch_size:
            return ""
        return (
            f"trained on {format_count(count, 'example')}, fewer than a batch of {plan.batch_size}: a step "
            "takes them all"
        )

    def as_the_server_says(self, task: messages.Task) -> "LocalData":
        """The examples with the federation's shape, preprocessing and labels.

        Raises `PeerError` if they do not fit.
        """
        self.check(task)
        return replace(self, train=_for_task(self.train, task), held_out=_for_task(self.held_out, task))

    def for_training(self, task: messages.Task) -> "LocalData":
        """As `as_the_server_says`, with the mirror images that the task's plan asks for."""
        data = self.as_the_server_says(task)
        if task.plan is None or not task.plan.mirror:
            return data
        from edge_client.data.pictures.augmentations import mirrored

        return replace(data, train=mirrored(data.train, task.plan.mirror))

    def check(self, task: messages.Task) -> None:
        """Raise `PeerError` if these examples do not fit the model's columns, shape or classes."""
        for data in (self.train, self.held_out):
            misfit = columns.column_misfit(data.columns, task.preprocessing.columns)
            misfit = (
                misfit
                or shapes.shape_misfit(data, task.model.input_shape, task.preprocessing)
                or _other_rate(data, task)
            )
            if data.in_units:
                scales = data.preprocessing.picture_scale, task.preprocessing.picture_scale
                misfit = misfit or scale_misfit(*scales)
            if why := misfit or _unknown_classes(data, task):
                raise PeerError(why, reason=errors.Reason.INCOMPATIBLE)


class DataFeed(Protocol):
    """Data that may change while the device runs."""

    def reload_if_changed(self) -> LocalData | None:
        """The data if it has changed, else None."""

    def note_training(self, received_loss: float | None) -> LocalData | None:
        """Note that the device has trained a model, which had this loss, on the current data.

        Returns the data if any of it was new, or if there was an alarm about it.
        """


def _other_rate(data: "LabelledData", task: messages.Task) -> str:
    own, known = data.preprocessing.rate, task.preprocessing.rate
    if own is None or known in (None, own):
        return ""
    return f"the model takes recordings of {known:g} Hz, the data has {own:g}: add rate={known:g} to --data"


def _unknown_classes(data: "LabelledData", task: messages.Task) -> str:
    # Imported here, as below: what a device imports at its start has no use for arrays.
    from edge_client.data.tasks.labels import NO_LABELS
    from edge_client.data.tasks.registry import learning_task

    names, outputs = task.preprocessing.class_names, task.model.num_classes
    learnt = learning_task(task.model.task)
    if data.unlabelled and learnt.labels != "none":
        return NO_LABELS
    if not learnt.has_named_outputs:
        return ""
    if learnt.labels == "numbers" and names and data.named:
        return misfit_of_numbers(data.class_names, names)
    if len(names) > outputs:
        return f"the model has {format_count(outputs, 'class')}, the federation names {len(names)}"
    if names or data.named:
        return misfit(data.own_classes, names, named=data.named)
    return misfit(data.own_classes, numbers(outputs), named=False)


def _for_task(data: "LabelledData", task: messages.Task) -> "LabelledData":
    """Inputs of the model's shape and columns, labels as indices into the task's classes, if it has some."""
    from edge_client.data.tasks.labels import in_task

    names = task.preprocessing.class_names
    # Fitted first: what a resized picture is known by is the data that is the same for every task.
    try:
        taken = shapes.fit_data(data, task.model.input_shape, task.preprocessing)
    except ConfigError as error:
        raise PeerError(str(error), reason=errors.Reason.INCOMPATIBLE) from error
    shapes.say_other_scale(taken, task.preprocessing)
    return replace(in_task(taken, task.model.task, names), preprocessing=task.preprocessing)
