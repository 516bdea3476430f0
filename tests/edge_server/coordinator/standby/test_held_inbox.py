"""The server's inbox while the lease is held, and while it is not."""

import queue
from typing import Any

import pytest

from edge_server.coordinator.standby.writing_right import HeldInbox, Suspended
from edge_server.rounds.events import StopRequested


class Right:
    """Answers as the test says, in order; the last answer holds from then on."""

    def __init__(self, *answers: bool) -> None:
        self.answers = list(answers)

    def exercise(self) -> bool:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def inbox_of(right: Right, *events: Any, early: tuple[Any, ...] = ()) -> HeldInbox:
    inbox = queue.SimpleQueue[Any]()
    for event in events:
        inbox.put(event)
    return HeldInbox(inbox, right, early)  # type: ignore[arg-type]


def taken(held: HeldInbox) -> list[Any]:
    """All events that come out now."""
    events = []
    for _ in range(10):
        try:
            events.append(held.get(timeout=0.0))
        except queue.Empty:
            continue
    return events


def test_early_events_come_first() -> None:
    assert taken(inbox_of(Right(True), 3, 4, early=(1, 2))) == [1, 2, 3, 4]


def test_without_the_right_events_wait_in_order() -> None:
    right = Right(False)
    held = inbox_of(right, 2, 3, early=(1,))
    assert taken(held) == []
    right.answers = [True]
    assert taken(held) == [1, 2, 3]


@pytest.mark.parametrize("wish", [StopRequested(), Suspended("the server was asked to stop")])
def test_without_the_right_the_wish_to_end_is_heard(wish: Any) -> None:
    held = inbox_of(Right(False), 1, wish)
    assert taken(held) == [wish]
    assert list(held.waiting) == [1]


def test_an_event_that_came_while_the_process_was_stopped_waits_as_the_first() -> None:
    right = Right(True, False)
    held = inbox_of(right, 1, 2)
    assert taken(held) == []
    right.answers = [True]
    assert taken(held) == [1, 2]


def test_a_wish_to_end_that_came_while_the_process_was_stopped_is_heard() -> None:
    assert taken(inbox_of(Right(True, False), StopRequested())) == [StopRequested()]
