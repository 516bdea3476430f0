"""The events that a run lists: joins, losses, rounds, refusals, deliveries."""

import asyncio
from contextlib import closing
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from edge_server.observability.dashboard.access import access_of
from edge_server.observability.dashboard.app import make_app
from edge_server.observability.dashboard.feed import Feed
from edge_server.rounds.event_entry import EventKind
from edge_server.rounds.events import Note
from edge_server.storage.event_list import EventFile, read_events
from schemas.messages import Death
from schemas.values import DeliveryVerdict
from tests.edge_server.rounds.by_hand import NAME, Run, delivering, delivery, started
from tests.edge_server.rounds.test_fleet import birth
from tests.edge_server.simulation.small import run as simulated

LOCAL = access_of("127.0.0.1", 8265, None, bound="127.0.0.1")


def listed(run: Run, kind: EventKind) -> list[tuple[str | None, str]]:
    return [(note.device, note.what) for note in run.log if isinstance(note, Note) and note.kind is kind]


def test_joins_and_losses_are_listed_once_each() -> None:
    run = started("a", start_clients=3)
    for session in (1, 1, 2):
        run.hear(birth("b", session=session))
    for _ in range(2):
        run.hear(Death(federation=NAME, device="b", session=2))
    run.hear(birth("b", session=3))
    assert listed(run, EventKind.JOIN) == [("a", "joined"), ("b", "joined"), ("b", "is back")]
    assert listed(run, EventKind.LOSS) == [("b", "lost")]


def test_a_round_is_listed_when_it_begins_and_when_it_is_abandoned() -> None:
    run = started("a", "b", start_clients=2)
    run.plan("a", "b")
    run.decline("a")
    run.decline("b")
    assert listed(run, EventKind.ROUND) == [(None, "round 1 begun"), (None, "round abandoned")]


def test_the_dashboard_reads_the_events_of_a_finished_run(tmp_path: Path) -> None:
    simulated(tmp_path / "run", "fedavg", "num-clients=3", "rounds=2", "deliver=trial")
    answers = answers_of(
        tmp_path / "run", "", "?kind=join", "?kind=delivery,round&device=device-0001", "?after=2"
    )
    texts = [
        [(event["kind"], event["text"].partition(":")[0]) for event in answer["events"]] for answer in answers
    ]
    rounds = ["round 1 begun", "round 1 closed", "round 2 begun", "round 2 closed"]
    assert [text for kind, text in texts[0] if kind == "round"] == [*rounds, "run finished"]
    assert texts[1] == [("join", "joined")] * 3
    assert texts[2] == [("delivery", "model delivered")]
    assert len(texts[3]) == len(texts[0]) - 2
    assert [answer["last"] for answer in answers] == [len(texts[0])] * 4


@pytest.mark.parametrize(("served", "what"), [(True, "model delivered"), (False, "earlier model kept")])
def test_a_delivery_event_states_whether_the_device_serves_the_new_model(served: bool, what: str) -> None:
    run, message = delivering("a"), delivery("a")
    verdict = DeliveryVerdict(served=served, why="10.0% of 96 examples", earlier="home-0 round 4")
    metrics = message.metrics.model_copy(update={"verdict": verdict})
    run.hear(message.model_copy(update={"metrics": metrics}))
    (note,) = (entry for entry in run.log if isinstance(entry, Note) and entry.kind is EventKind.DELIVERY)
    assert (note.what, note.routine) == (what, served)
    assert verdict.why in note.detail
    assert ("home-0 round 4" in note.detail) == (not served)


def answers_of(folder: Path, *queries: str) -> list[dict]:
    feed = Feed(folder, live=False)
    with TestClient(make_app(feed, LOCAL), base_url="http://127.0.0.1:8265") as client:
        return [client.get(f"/api/events{query}").raise_for_status().json() for query in queries]


def test_a_page_is_updated_when_there_are_new_events(tmp_path: Path) -> None:
    path = tmp_path / "run" / "events.sqlite"
    simulated(tmp_path / "run", "fedavg", "num-clients=3", "rounds=1")
    feed = Feed(tmp_path / "run", live=False)
    before = asyncio.run(feed.read_state())
    assert before.run["events"] == len(read_events(path))
    with closing(EventFile(path)) as file:
        file.add([Note("rolled back", kind=EventKind.ROUND).event(1e9)])
    assert asyncio.run(feed.wait_for_change(before, timeout_s=60))
    assert asyncio.run(feed.read_state()).run["events"] == before.run["events"] + 1


def test_an_invalid_filter_is_refused(tmp_path: Path) -> None:
    feed = Feed(tmp_path, live=False)
    with TestClient(make_app(feed, LOCAL), base_url="http://127.0.0.1:8265") as client:
        assert [client.get(f"/api/events?{words}").status_code for words in ("kind=x", "after=-1")] == [
            400
        ] * 2


def test_a_rejoin_with_a_newer_certificate_is_listed_as_a_renewal() -> None:
    run = started("a", start_clients=3)
    for session, until in enumerate((1.8e9, 1.8e9, 1.9e9, 1.85e9), start=1):
        run.hear(birth("b", session=session).model_copy(update={"certificate_until": until}))
    assert listed(run, EventKind.RENEWAL) == [("b", "certificate renewed")]
    (note,) = (entry for entry in run.log if isinstance(entry, Note) and entry.kind is EventKind.RENEWAL)
    assert note.detail == "valid to 2030-03-17 17:46 UTC"
