"""The loop of processes and threads: when it ticks, what it waits for, and what ends it."""

import logging
import queue
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from edge_client.transport import event_loop
from edge_client.transport.event_loop import EventLoop, call_part
from schemas.errors import ConfigError, PeerError

TICK_S = 0.25


class Desk:
    """A loop with a clock and an inbox of the test; `done` is what it did, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tick_s: float | None = TICK_S, **more: Any) -> None:
        self.now, self.events, self.done = 100.0, deque[tuple[float, Any]](), list[Any]()
        self.fails: dict[Any, Exception] = {}
        monkeypatch.setattr(event_loop, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.loop = EventLoop(self, tick_s, tick=self.do, handle=self.do, **more)

    def do(self, what: Any) -> None:
        self.done.append(what)
        if what in self.fails:
            raise self.fails[what]

    def post(self, *events: Any, after_s: float = 0.0) -> None:
        self.events.extend((self.now + after_s, event) for event in events)

    def get(self, *, timeout: float | None) -> Any:
        if timeout is None:
            assert self.events, "it would wait for ever"
        elif not self.events or self.events[0][0] > self.now + timeout:
            self.now += timeout
            raise queue.Empty
        at, event = self.events.popleft()
        self.now = max(self.now, at)
        return event

    def run(self, turns: int) -> None:
        for _ in range(turns):
            self.loop.turn()


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(monkeypatch)


def test_an_idle_loop_ticks_at_its_interval(desk: Desk) -> None:
    desk.run(3)
    assert desk.done == [100.0, 100.25, 100.5]


def test_events_are_handled_one_a_turn_and_delay_no_tick(desk: Desk) -> None:
    desk.post("a", "b", after_s=0.2)
    desk.post("c", after_s=0.3)
    desk.run(4)
    assert desk.done == [100.0, "a", "b", 100.25, "c"]


def test_a_tick_that_is_asked_for_comes_with_the_next_turn(desk: Desk) -> None:
    desk.post("a", "b")
    desk.run(1)
    desk.loop.tick_soon()
    desk.run(1)
    assert desk.done == [100.0, "a", 100.0, "b"]


def test_without_a_tick_the_loop_waits_for_events_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(monkeypatch, tick_s=None)
    desk.post("a", after_s=3600.0)
    desk.run(1)
    assert (desk.done, desk.now) == (["a"], 3700.0)


def test_the_reason_to_end_is_asked_for_before_each_turn(desk: Desk) -> None:
    desk.post("a", "b")
    desk.loop.run(until=lambda: "a" in desk.done)
    assert desk.done == [100.0, "a"]
    desk.loop.run(until=lambda: True)
    assert desk.done == [100.0, "a"]


def test_a_tick_that_is_the_reason_to_end_is_followed_by_no_wait(desk: Desk) -> None:
    desk.post("a")
    desk.loop.run(until=lambda: 100.0 in desk.done)
    assert (desk.done, desk.now) == ([100.0], 100.0)


def test_what_a_peer_sends_is_logged_once_and_counted_and_ends_nothing(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.fails = {"bad": PeerError("no sense", reason="malformed"), 100.0: PeerError("late", reason="stale")}
    desk.post("bad", "bad", "good")
    desk.run(3)
    assert desk.done == [100.0, "bad", "bad", "good"]
    assert desk.loop.ignored == {"malformed": 2, "stale": 1}
    bad = "ignored (malformed): no sense"
    assert [record.getMessage() for record in caplog.records] == ["ignored (stale): late", bad, bad]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    assert [record.reason for record in caplog.records] == ["stale", "malformed", "malformed"]


def test_a_named_loop_begins_its_lines_with_the_name(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk(monkeypatch, name="the lease")
    desk.fails = {"bad": PeerError("no sense")}
    desk.post("bad")
    desk.run(1)
    assert caplog.messages == ["the lease: ignored (malformed): no sense"]


def test_an_owner_that_logs_refusals_itself_is_told_of_each(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[PeerError] = []
    desk = Desk(monkeypatch, on_peer_error=told.append)
    desk.fails = {"bad": PeerError("no sense")}
    desk.post("bad")
    desk.run(1)
    assert told == [desk.fails["bad"]]
    assert desk.loop.ignored == {"malformed": 1}
    assert not caplog.records


@pytest.mark.parametrize("what", ["bad", 100.0])
def test_any_other_exception_ends_the_loop_and_reaches_its_owner(desk: Desk, what: Any) -> None:
    desk.fails = {what: ConfigError("the broker refuses the certificate")}
    desk.post("bad", "good")
    with pytest.raises(ConfigError, match="refuses the certificate"):
        desk.loop.run(until=lambda: False)
    assert desk.done[-1] == what


def test_an_owner_may_go_on_after_an_exception(desk: Desk) -> None:
    desk.fails = {100.0: ValueError("a fault")}
    with pytest.raises(ValueError, match="a fault"):
        desk.run(1)
    desk.post("good")
    desk.run(3)
    assert desk.done == [100.0, "good", 100.25]


def _raise(error: Exception) -> Callable[[], None]:
    def part() -> None:
        raise error

    return part


def test_a_part_that_fails_leaves_the_others_alone(caplog: pytest.LogCaptureFixture) -> None:
    done: list[str] = []
    for part in (_raise(PeerError("no sense")), _raise(OSError("full")), _raise(KeyError("x"))):
        call_part(part)
        call_part(done.append, "next")
    assert done == ["next"] * 3
    assert caplog.messages == ["no sense", "full", "a part of the service has failed"]
    assert [record.exc_info is not None for record in caplog.records] == [False, False, True]


def test_a_part_cannot_keep_a_process_from_ending() -> None:
    def part() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call_part(part)
