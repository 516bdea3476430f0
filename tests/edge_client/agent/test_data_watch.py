"""A device without work looks at its data now and then."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from edge_client.agent.session.state import Session, SessionPhase
from edge_client.agent.session_runner import DataWatch
from edge_client.transport.broker_link import LinkUp

IDLE = Session("federation", "pi")


def looks(*ticks: tuple[float, Session], every_s: float = 30.0) -> list[float]:
    """When the watch looks, for a device that is connected at 100 s."""
    seen: list[float] = []
    now = [0.0]
    worker: Any = SimpleNamespace(look=lambda context: seen.append(now[0]))
    watch = DataWatch(worker, cast(Any, SimpleNamespace(context=None)), every_s=every_s)
    watch.tick(50.0, IDLE)
    watch.on_connected(LinkUp(1, None), 100.0)
    for now[0], session in ticks:
        watch.tick(now[0], session)
    return seen


def test_it_looks_at_intervals_once_connected() -> None:
    assert looks((129, IDLE), (130, IDLE), (131, IDLE), (161, IDLE)) == [130, 161]


def test_it_waits_while_there_is_work() -> None:
    busy = replace(IDLE, phase=SessionPhase.WORKING)
    assert looks((130, busy), (140, busy), (141, IDLE)) == [141]


def test_no_interval_means_no_looks() -> None:
    assert looks((10_000, IDLE), every_s=0) == []
