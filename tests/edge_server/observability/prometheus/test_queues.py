"""The reported queue lengths are the numbers of waiting items."""

import queue
import threading
from types import SimpleNamespace
from typing import Any

from edge_client.transport.broker_link import Confirmed, parse_address
from edge_client.transport.mqtt_client import Link
from edge_server.coordinator.jobs import JobDone, Jobs
from edge_server.observability.counters import Durations
from edge_server.rounds.events import PlanRound, RoundPlanned


def test_messages_without_acknowledgement_count_as_outgoing() -> None:
    link = Link(parse_address("mqtt://127.0.0.1:1"), queue.SimpleQueue(), client_id="x", filters=())
    link.publish("a", b"1")
    link.publish("a", b"2")
    link.publish("a", b"not waited for", qos=0)
    link.send_chunk("key", "b", lambda: b"chunk")
    assert link.outgoing == 3
    # paho numbers messages from 1.
    link.handle(Confirmed(1))
    assert link.outgoing == 2
    link.handle(Confirmed(1))
    assert link.outgoing == 2


def test_jobs_are_counted_until_they_end_and_are_timed() -> None:
    go_on, inbox = threading.Event(), queue.SimpleQueue[Any]()

    def plan(command: PlanRound, *, chunk_bytes: int) -> RoundPlanned:
        go_on.wait()
        return RoundPlanned(command.attempt, {})

    coordinator: Any = SimpleNamespace(
        planner=SimpleNamespace(plan=plan),
        context=SimpleNamespace(durations=Durations()),
        early_graphs=SimpleNamespace(begin=lambda: None),
    )
    jobs = Jobs(coordinator, inbox)
    for attempt in (1, 2):
        jobs.plan(PlanRound(1, attempt, ()), 1024)
    assert jobs.open_count == 2
    go_on.set()
    done = [inbox.get(timeout=60) for _ in range(2)]
    assert done == [JobDone(RoundPlanned(1, {})), JobDone(RoundPlanned(2, {}))]
    assert jobs.open_count == 0
    assert sum(coordinator.context.durations.histograms()["planning"].counts) == 2
    jobs.end(finished=True)
