"""The trainings that a task asks for, done one task at a time or for several tasks in common steps."""

from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from edge_client.training.results import TrainingStopped
from edge_client.training.trainer import Trained, Trainer, TrainingJob, cohort_key

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class TrainingRequest:
    """A training that a task cannot go on without; of one that `scores`, only the groups count."""

    trainer: Trainer
    job: TrainingJob
    scores: bool = False

    def answer(self) -> Any:
        """Do it: what was trained, or the groups."""
        return self.trainer.score(self.job) if self.scores else self.trainer.train(self.job)

    @property
    def key(self) -> Hashable:
        """Requests of one key may be done in common steps."""
        return id(self.trainer), self.scores, cohort_key(self.job)


Work = Generator[TrainingRequest, Any, T]
"""A task's work up to its result: yields requests, and is sent the answers."""


def do_alone(work: Work[T]) -> T:
    """Do the work with each training as it is asked for."""
    try:
        request = next(work)
        while True:
            request = _advance(work, request)
    except StopIteration as end:
        result: T = end.value
        return result


def _advance(work: Work[T], request: TrainingRequest) -> TrainingRequest:
    """Answer a request; returns the next one."""
    try:
        answer = request.answer()
    except Exception as error:
        # The work closes what it has opened.
        return work.throw(error)
    return work.send(answer)


def do_together(works: Sequence[Work[T]]) -> list[T | Exception]:
    """Do all works, trainings of one key in common steps; an error is the result of its work alone."""
    results: dict[int, T | Exception] = {}
    waiting: dict[int, TrainingRequest] = {}

    def go_on(place: int, step: Callable[[], TrainingRequest]) -> None:
        try:
            waiting[place] = step()
        except StopIteration as end:
            results[place] = end.value
        except Exception as error:
            results[place] = error

    for place, work in enumerate(works):
        go_on(place, partial(next, work))
    while waiting:
        groups: dict[Hashable, list[int]] = {}
        for place, request in waiting.items():
            groups.setdefault(request.key, []).append(place)
        asked = dict(waiting)
        waiting.clear()
        for places in groups.values():
            answers = _answers([asked[place] for place in places])
            # Before any other training: what was trained together is read until then.
            for place, answer in zip(places, answers, strict=True):
                if isinstance(answer, Exception):
                    go_on(place, partial(works[place].throw, answer))
                elif answer is not None:
                    sent = answer.groups if asked[place].scores else answer
                    go_on(place, partial(works[place].send, sent))
            for place, answer in zip(places, answers, strict=True):
                if answer is None:
                    go_on(place, partial(_advance, works[place], asked[place]))
    return [results[place] for place in range(len(works))]


def _answers(requests: Sequence[TrainingRequest]) -> Sequence[Trained | Exception | None]:
    """What came of requests of one key in common steps; None for one that is to be done alone."""
    if len(requests) == 1:
        return [None]
    first = requests[0]
    try:
        return first.trainer.train_together([each.job for each in requests], measured=not first.scores)
    except TrainingStopped as stopped:
        return [stopped] * len(requests)
