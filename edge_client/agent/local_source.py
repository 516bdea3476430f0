"""The device's data: read at the start, and again when it has changed; new examples are tested for drift."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edge_client.data import changes, classes, dataset, drift, user_function
from edge_client.data.dataset import LabelledData, sample
from edge_client.data.drift import DriftTest, ExampleRecord, among, read_record, write_record
from edge_client.data.local import LocalData
from edge_client.data.partition import Partition, holdout, share, split_indices
from edge_client.data.sources import files_of, is_function, load_source
from edge_client.data.tasks import labels as conversion
from edge_client.data.tasks.registry import losses_of
from edge_client.inference.installed_model import served_model_path
from schemas.errors import ConfigError, EdgeError, format_count
from schemas.values import DriftFinding

if TYPE_CHECKING:
    from edge_client.inference.onnx_model import LoadedModel

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


log = logging.getLogger(__name__)

FUNCTION_SHARE = 10  # Pause between two calls of a data function, as a multiple of its duration


WHOLE = Partition("iid")


@dataclass(frozen=True)
class DataChoice:
    """The data source, this device's share of it (`index` from 0), and the fraction to hold out."""

    source: str
    data_root: Path | None = None
    partition: Partition = WHOLE
    index: int = 0
    count: int = 1
    hold_out: float = 0.2
    seed: int = 0

    @property
    def description(self) -> str:
        """The source, and the share if there are several."""
        return self.source if self.count == 1 else f"{self.source} (share {self.index + 1}/{self.count})"


class LocalSource:
    """Reads the chosen data; may be used from several threads.

    `record` is a file that keeps examples on their side, training or held out, when the device is started
    again. `drift` compares new examples with those that the device has trained with.
    """

    def __init__(
        self,
        choice: DataChoice,
        *,
        record: Path | None = None,
        drift: DriftTest | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._choice, self._clock = choice, clock
        self._files = files_of(choice.source, data_root=choice.data_root)
        self.grows = bool(self._files) or is_function(choice.source)
        self._path, self._drift = record if self.grows else None, drift
        self._record = ExampleRecord()
        self._mark: changes.Mark | None = None
        self._next_call = 0.0
        self._settles_at: float | None = None
        self._data: LocalData | None = None
        self._lock = threading.Lock()

    def read(self) -> LocalData:
        """Read the data for the first time, log its size; raises `ConfigError` if it cannot be read."""
        self._mark = changes.mark_of_files(self._files) if self._files else None
        whole = self._load()
        mine = self._mine(whole)
        saved = read_record(self._path, about=str(self._choice)) if self._path is not None else None
        self._record = saved or self._record
        if self.grows:
            self._data = self._split(mine)
        else:
            self._data = LocalData(*holdout(mine, fraction=self._choice.hold_out, seed=self._choice.seed))
        self._log("")
        if remark := classes.remark_on_gaps(whole):
            log.info("%s: %s", self._choice.description, remark)
        if (name := mine.only_class) is not None:
            log.warning(
                "%s: %s, all of one class, '%s'",
                self._choice.description,
                format_count(len(mine), "example"),
                name,
            )
        return self._data

    def reload_if_changed(self) -> LocalData | None:
        """Return the data if it has changed, or if there is an alarm about it, else None.

        Examples that were held out stay so. If the data cannot be read, such as a half-written file, the
        earlier data stays in use and a warning is logged.
        """
        with self._lock:
            try:
                found = self._load_if_changed()
            except ConfigError as error:
                log.warning("the data has changed and cannot be used, the earlier data is kept: %s", error)
                return None
            before = self._data
            if before is None:
                return None
            if found is not None:
                self._data = self._split(self._mine(found))
                self._log("changed: ")
            self._look_for_drift()
            return None if self._data is before else self._data

    def note_training(self, received_loss: float | None) -> LocalData | None:
        """Note that the device has trained a model, which had this loss, on the current data.

        Returns the data if any of it was new, or if there was an alarm about it.
        """
        with self._lock:
            if not self.grows or self._data is None:
                return None
            before = self._data
            self._record = self._record.after_training(received_loss)
            self._save()
            self._data = replace(before, new=0, alarm=self._record.alarm)
            return self._data if before.new or before.alarm else None

    def _load_if_changed(self) -> dataset.LabelledData | None:
        if self._files:
            mark = changes.mark_of_files(self._files)
            if mark == self._mark and not changes.is_past(self._settles_at):
                return None
            # Taken before reading, so that a write meanwhile counts as another change.
            self._mark = mark
            return self._load()
        if not is_function(self._choice.source) or self._clock() < self._next_call:
            return None
        before = self._mark
        data = self._load()
        return None if self._mark == before else data

    def _load(self) -> dataset.LabelledData:
        began = self._clock()
        try:
            data = load_source(self._choice.source, data_root=self._choice.data_root)
        except (EdgeError, OSError, MemoryError):
            raise
        except Exception as error:
            # A reader's own fault: its text may quote the data, and a log with it can be fetched.
            why = f"{self._choice.source} cannot be read: {user_function.failure_of(error)}"
            raise ConfigError(why, quoted=repr(error)) from error
        self._settles_at = data.settles_at
        if is_function(self._choice.source):
            self._mark = changes.mark_of_examples(data)
            self._next_call = self._clock() + FUNCTION_SHARE * (self._clock() - began)
        return data

    def _mine(self, data: dataset.LabelledData) -> dataset.LabelledData:
        chosen = self._choice
        return share(data, chosen.partition, index=chosen.index, count=chosen.count, seed=chosen.seed)

    def _split(self, mine: dataset.LabelledData) -> LocalData:
        """The current examples, each on the side (training, held out) it was on before, equal ones on one."""
        marks = changes.marks_of_images(mine.images, mine.sizes if mine.has_boxes else None)
        first = np.sort(np.unique(marks, return_index=True)[1])
        _, held = split_indices(
            first,
            mine.strata[first],
            fraction=self._choice.hold_out,
            seed=self._choice.seed,
            before=self._record.sides(marks[first]),
            origins=None if mine.origins is None else mine.origins[first],
        )
        aside = among(marks[held], marks)
        train, held_out = (mine.subset(np.flatnonzero(chosen)) for chosen in (~aside, aside))
        return self._remember(LocalData(train, held_out), marks[~aside], marks[aside])

    def _remember(self, data: LocalData, train: changes.Marks, held_out: changes.Marks) -> LocalData:
        """Record the side of each example of the data, and count those that are new."""
        self._record = self._record.split(train, held_out)
        self._save()
        new = int(self._record.is_new(train).sum())
        return replace(data, new=new, alarm=self._record.alarm)

    def _save(self) -> None:
        if self._path is None:
            return
        try:
            write_record(self._path, self._record, about=str(self._choice))
        except OSError as error:
            log.warning("%s cannot be written, a restart may mix held-out examples: %s", self._path, error)

    def _look_for_drift(self) -> None:
        if self._drift is None or self._data is None or not self.grows:
            return
        tested = self._drift(self._data, self._record)
        if tested is None:
            return
        self._record = self._record.after_test(tested.marks, tested.finding)
        self._save()
        if tested.finding is not None:
            log.warning(
                "the data has drifted: %s of %d new examples differs (p = %.2g)",
                *(tested.finding.statistic, tested.finding.examples, tested.finding.p_value),
            )
            self._data = replace(self._data, alarm=self._record.alarm)

    def _log(self, prefix: str) -> None:
        assert self._data is not None
        train, held = len(self._data.train), len(self._data.held_out)
        log.info(
            "%s: %s%s, %d trained on, %d held out",
            *(self._choice.description, prefix, format_count(train + held, "example"), train, held),
        )
        if not prefix and (remark := classes.remark_on_numbers(self._data.train)):
            log.info("%s: %s", self._choice.description, remark)
