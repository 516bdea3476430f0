"""One publication for all who need a blob: at the pace of those who follow, repaired for all others.

The machines of both sides run here. Pieces are of 2 chunks, devices tell what they have heard every 2 chunks,
and nobody may be more than 8 chunks behind.
"""

from collections import Counter
from dataclasses import replace

import pytest

from edge_client.agent.session import broadcasts
from edge_client.agent.session.events import ChunkArrived
from edge_client.transport.chunk_transfer import BROADCAST_PATIENCE_S
from edge_server.rounds import events as on_server
from edge_server.rounds.broadcast import pacing
from edge_server.rounds.broadcast.pacing import QUIET_S, STALL_S
from edge_server.rounds.machine import RoundRules
from edge_server.rounds.participant import Status
from edge_server.rounds.participants import Participants
from schemas.messages import BlobRequest, BroadcastEnd, BroadcastProgress, TaskReply, Update
from schemas.tensors.blobs import CHUNK_HEADER_BYTES, Chunk
from tests.edge_server.rounds.world import CHUNK, Packet, World

CHUNKS = 40
AHEAD = 8


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(pacing, "RANGE_BYTES", 2 * CHUNK)
    monkeypatch.setattr(pacing, "AHEAD_BYTES", AHEAD * CHUNK)
    monkeypatch.setattr(broadcasts, "REPORT_BYTES", 2 * CHUNK)


def world(devices: int = 3, chunks: int = CHUNKS) -> World:
    """All devices are offered a task of so many chunks, and nobody has answered yet."""
    rules = RoundRules(rounds=1, start_clients=devices, deliver=False, rejoin_s=60.0)
    made = World(devices, rules, blob_chunks=chunks, shared=True)
    while not made.federation.participants:
        if made.network:
            made.deliver()
        else:
            made.finish_job()
    return made


def settle(scene: World, *, deaf: str = "", lossy: str = "", lost: tuple[int, ...] = ()) -> None:
    """Let everything arrive; nothing shared at `deaf`, and at `lossy` not the chunks that are `lost`."""
    while scene.network:
        packet = scene.network[0]
        gone = packet.device == lossy and isinstance(packet.content, Chunk) and packet.content.index in lost
        if packet.shared and (packet.device == deaf or gone):
            scene.network.pop(0)
        else:
            scene.deliver()


def have_all(scene: World) -> list[bool]:
    return [node.work is not None for node in scene.nodes.values()]


def test_the_state_leaves_the_server_once_for_all_devices():
    scene = world(devices=5)
    settle(scene)
    assert have_all(scene) == [True] * 5
    assert scene.egress == CHUNKS


def test_a_small_state_leaves_at_once_and_nobody_reports():
    scene = world(chunks=2)
    said = []
    while scene.network:
        said.append(scene.network[0].content)
        scene.deliver()
    assert have_all(scene) == [True] * 3
    assert scene.egress == 2
    assert not [one for one in said if isinstance(one, BroadcastProgress | BlobRequest | BroadcastEnd)]


def test_nothing_is_published_before_all_have_answered_or_it_is_quiet():
    scene = world()
    held_back = [one for one in scene.network if one.device == "d2"]
    scene.network = [one for one in scene.network if one.device != "d2"]
    settle(scene)
    assert scene.egress == 0
    scene.pass_time(QUIET_S)
    settle(scene)
    assert have_all(scene) == [True, True, False]
    scene.network = held_back
    settle(scene)
    # It came too late for all of it, was told so, and has asked.
    assert have_all(scene) == [True] * 3
    assert scene.egress == 2 * CHUNKS


def test_what_is_lost_on_the_way_is_asked_for_and_nothing_else():
    scene = world()
    settle(scene, lossy="d1", lost=(3, 4, 17))
    assert have_all(scene) == [True] * 3
    assert scene.egress == CHUNKS + 3


def test_a_last_chunk_that_is_lost_is_asked_for_after_a_while():
    scene = world(chunks=4)
    settle(scene, lossy="d1", lost=(3,))
    assert have_all(scene) == [True, False, True]
    scene.pass_time(BROADCAST_PATIENCE_S)
    settle(scene)
    assert have_all(scene) == [True] * 3
    assert scene.egress == 5


def test_nobody_runs_ahead_of_a_device_that_follows_slowly():
    scene = world()
    seen = 0
    while scene.network:
        others = [n for n, one in enumerate(scene.network) if not (one.device == "d0" and one.shared)]
        if others:
            scene.deliver(others[0])
        else:
            heard = CHUNKS - sum(one.shared for one in scene.network) if scene.egress == CHUNKS else seen
            assert scene.egress - heard <= AHEAD + 2
            scene.deliver(0)
            seen += 1
    assert have_all(scene) == [True] * 3
    assert scene.egress == CHUNKS


def test_a_device_that_hears_nothing_is_waited_for_once_and_then_asks():
    scene = world()
    settle(scene, deaf="d1")
    assert scene.egress == AHEAD
    scene.pass_time(STALL_S)
    reported = [one.content for one in scene.network if isinstance(one.content, BroadcastEnd)]
    assert [one.device for one in reported] == ["d1"]
    settle(scene, deaf="d1")
    assert have_all(scene) == [True] * 3
    # Both publications' worth: the others heard it, d1 asked for all of it.
    assert scene.egress == 2 * CHUNKS


def test_a_device_that_says_the_same_again_and_again_is_waited_for_no_longer_than_a_silent_one():
    scene = world()
    settle(scene, deaf="d1")
    task = scene.federation.participants["d1"].assignment.task
    said = BroadcastProgress(
        federation="home",
        device="d1",
        run=task.run,
        attempt=task.attempt,
        digest=task.blobs["state"].digest,
        index=0,
    )
    # The first of them is news, the others are not: at half the patience each, two later it is over.
    for _ in range(3):
        scene.network.append(Packet("d1", True, said))
        settle(scene, deaf="d1")
        scene.pass_time(STALL_S / 2)
    settle(scene, deaf="d1")
    assert have_all(scene) == [True] * 3


def test_a_device_whose_link_is_cut_is_not_waited_for():
    scene = world()
    while scene.egress == 0:
        scene.deliver()
    scene.cut("d1")
    settle(scene)
    assert have_all(scene) == [True, False, True]
    assert scene.egress == CHUNKS
    scene.connect("d1")
    settle(scene)
    assert have_all(scene) == [True] * 3


def test_a_device_that_restarts_asks_for_what_it_lacks():
    scene = world()
    while scene.egress < AHEAD:
        scene.deliver()
    for _ in range(6):
        scene.deliver()
    scene.kill_and_remember("d1")
    settle(scene)
    scene.connect("d1")
    settle(scene)
    assert have_all(scene) == [True] * 3
    assert scene.egress <= 2 * CHUNKS


def test_a_server_that_forgets_its_broadcast_answers_whoever_asks():
    scene = world()
    while scene.egress == 0:
        scene.deliver()
    # What recovery reads from a journal has no broadcast.
    scene.federation = type(scene.federation)(**{**vars(scene.federation), "broadcast": None})
    settle(scene)
    scene.pass_time(BROADCAST_PATIENCE_S)
    settle(scene)
    assert have_all(scene) == [True] * 3


def test_a_restarted_server_tells_who_still_listens_to_ask():
    scene = world()
    settle(scene, deaf="d1")
    assert have_all(scene) == [False] * 3
    # As recovery makes them of the journal: asked, but not heard of.
    parts = scene.federation.participants
    again = (replace(part, status=Status.OFFERED, offer_at=0.0) for part in parts.values())
    scene.federation = replace(scene.federation, broadcast=None, participants=Participants.of(again))
    scene.on_server(on_server.Tick())
    settle(scene)
    assert have_all(scene) == [True] * 3


def test_a_device_that_was_away_for_a_moment_is_not_waited_for():
    scene = world()
    settle(scene, deaf="d1")
    assert have_all(scene) == [False] * 3
    scene.cut("d1")
    scene.connect("d1")
    settle(scene)
    assert have_all(scene) == [True] * 3


def test_a_device_that_has_the_blob_does_not_listen():
    scene = world()
    ref = scene.federation.participants["d0"].assignment.task.blobs["state"]
    node = scene.nodes["d0"]
    node.disk.blobs[ref.digest] = scene.disk.blobs[ref.digest]
    node.session = replace(node.session, held=frozenset({ref.digest}))
    replies = []
    while not replies:
        scene.deliver()
        said = [one.content for one in scene.network if one.device == "d0"]
        replies = [one for one in said if isinstance(one, TaskReply)]
    assert replies[0].listens == ()
    settle(scene)
    assert have_all(scene) == [True] * 3
    assert scene.egress == CHUNKS


def test_what_all_devices_have_is_not_published():
    scene = world()
    ref = scene.federation.participants["d0"].assignment.task.blobs["state"]
    for node in scene.nodes.values():
        node.session = replace(node.session, held=frozenset({ref.digest}))
    settle(scene)
    assert have_all(scene) == [True] * 3
    assert scene.egress == 0


def test_a_report_of_what_was_never_published_changes_nothing():
    scene = world()
    task = scene.federation.participants["d0"].assignment.task
    common = {"federation": "home", "device": "d9", "run": task.run, "attempt": task.attempt}
    for digest, index in (("0" * 64, 0), (task.blobs["state"].digest, 10_000)):
        scene.network.append(Packet("d0", True, BroadcastProgress(**common, digest=digest, index=index)))
    settle(scene)
    assert have_all(scene) == [True] * 3


def test_a_chunk_of_something_else_is_ignored_on_a_shared_topic():
    scene = world()
    settle(scene)
    before = scene.nodes["d0"].session
    scene.on_device("d0", ChunkArrived(Chunk("0" * 16, 0, b"x"), shared=True))
    assert scene.nodes["d0"].session.task == before.task


def claims(scene: World) -> dict[str, int | None]:
    """What each device says to have heard on shared topics, once its work is done."""
    for name in scene.nodes:
        scene.finish_work(name)
    said = (packet.content for packet in scene.network)
    return {one.device: one.heard_bytes for one in said if isinstance(one, Update)}


FRAMES = CHUNKS * (CHUNK + CHUNK_HEADER_BYTES) - 7


def test_an_update_says_how_much_its_device_has_heard_on_shared_topics():
    scene = world()
    settle(scene, lossy="d1", lost=(3, 4, 17))
    lost = 3 * (CHUNK + CHUNK_HEADER_BYTES)
    assert claims(scene) == {"d0": FRAMES, "d1": FRAMES - lost, "d2": FRAMES}


def test_a_device_that_was_restarted_does_not_know_how_much_it_has_heard():
    scene = world()
    for _ in range(30):
        scene.deliver()
    scene.kill_and_remember("d1")
    scene.connect("d1")
    settle(scene)
    assert claims(scene)["d1"] is None


def test_what_is_published_names_those_who_are_there_and_listen():
    scene = world()
    heard: Counter[str] = Counter()
    publish = scene._publish

    def counted(command: on_server.Publish) -> None:
        heard.update(dict.fromkeys(command.listeners, command.count))
        publish(command)

    scene._publish = counted  # type: ignore[method-assign]
    settle(scene, deaf="d1")
    scene.pass_time(STALL_S)
    settle(scene, deaf="d1")
    # Nothing more is published for who is told to ask for the rest.
    assert heard == {"d0": CHUNKS, "d1": AHEAD, "d2": CHUNKS}
