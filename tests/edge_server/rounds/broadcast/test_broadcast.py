"""One publication of a blob for all devices: at the pace of the listeners, with repairs for the others.

Both state machines run here. The server publishes 2 chunks at a time, devices report progress every 2 chunks,
and no device may be more than 8 chunks behind.
"""

from collections import Counter
from dataclasses import replace

import pytest

from edge_client.agent.session import downloads
from edge_client.agent.session.events import ChunkArrived
from edge_client.transport.chunk_transfer import BROADCAST_PATIENCE_S
from edge_server.rounds import events as on_server
from edge_server.rounds.broadcast import pacing
from edge_server.rounds.broadcast.pacing import QUIET_S, STALL_S
from edge_server.rounds.machine import RoundRules
from edge_server.rounds.participant import Status
from edge_server.rounds.participants import Participants
from schemas.messages import BlobRequest, BroadcastEnd, BroadcastProgress, TaskReply, Update
from schemas.tensors.chunks import CHUNK_HEADER_BYTES, Chunk
from tests.edge_server.rounds.world import CHUNK, Packet, World

CHUNKS = 40
AHEAD = 8


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(pacing, "RANGE_BYTES", 2 * CHUNK)
    monkeypatch.setattr(pacing, "AHEAD_BYTES", AHEAD * CHUNK)
    monkeypatch.setattr(downloads, "REPORT_BYTES", 2 * CHUNK)


def world(devices: int = 3, chunks: int = CHUNKS) -> World:
    """A world whose devices are offered a state of `chunks` chunks; no device has answered yet."""
    rules = RoundRules(rounds=1, start_clients=devices, deliver=False, rejoin_s=60.0)
    made = World(devices, rules, blob_chunks=chunks, shared=True)
    while not made.federation.participants:
        if made.network:
            made.deliver()
        else:
            made.finish_job()
    return made


def settle(scene: World, *, deaf: str = "", lossy: str = "", lost: tuple[int, ...] = ()) -> None:
    """Deliver all packets, except shared ones for `deaf` and shared `lost` chunks for `lossy`."""
    while scene.network:
        packet = scene.network[0]
        gone = packet.device == lossy and isinstance(packet.content, Chunk) and packet.content.index in lost
        if packet.shared and (packet.device == deaf or gone):
            scene.network.pop(0)
        else:
            scene.deliver()


def have_all(scene: World) -> list[bool]:
    return [node.work is not None for node in scene.nodes.values()]


def test_the_state_is_sent_once_for_all_devices():
    scene = world(devices=5)
    settle(scene)
    assert have_all(scene) == [True] * 5
    assert scene.egress == CHUNKS


def test_a_small_state_is_sent_at_once_and_nobody_reports():
    scene = world(chunks=2)
    contents = []
    while scene.network:
        contents.append(scene.network[0].content)
        scene.deliver()
    assert have_all(scene) == [True] * 3
    assert scene.egress == 2
    unwanted = BroadcastProgress | BlobRequest | BroadcastEnd
    assert not [content for content in contents if isinstance(content, unwanted)]


def test_nothing_is_published_before_all_have_answered_or_a_quiet_period_has_passed():
    scene = world()
    held_back = [packet for packet in scene.network if packet.device == "d2"]
    scene.network = [packet for packet in scene.network if packet.device != "d2"]
    settle(scene)
    assert scene.egress == 0
    scene.pass_time(QUIET_S)
    settle(scene)
    assert have_all(scene) == [True, True, False]
    scene.network = held_back
    settle(scene)
    # d2 missed the whole publication, was notified, and requested the chunks.
    assert have_all(scene) == [True] * 3
    assert scene.egress == 2 * CHUNKS


def test_only_lost_chunks_are_requested():
    scene = world()
    settle(scene, lossy="d1", lost=(3, 4, 17))
    assert have_all(scene) == [True] * 3
    assert scene.egress == CHUNKS + 3


def test_a_lost_last_chunk_is_requested_after_a_while():
    scene = world(chunks=4)
    settle(scene, lossy="d1", lost=(3,))
    assert have_all(scene) == [True, False, True]
    scene.pass_time(BROADCAST_PATIENCE_S)
    settle(scene)
    assert have_all(scene) == [True] * 3
    assert scene.egress == 5


def test_the_publication_does_not_run_ahead_of_a_slow_device():
    scene = world()
    seen = 0
    while scene.network:
        slow = [packet.device == "d0" and packet.shared for packet in scene.network]
        others = [n for n, is_slow in enumerate(slow) if not is_slow]
        if others:
            scene.deliver(others[0])
        else:
            pending = sum(packet.shared for packet in scene.network)
            received = CHUNKS - pending if scene.egress == CHUNKS else seen
            assert scene.egress - received <= AHEAD + 2
            scene.deliver(0)
            seen += 1
    assert have_all(scene) == [True] * 3
    assert scene.egress == CHUNKS


def test_a_device_that_receives_nothing_is_waited_for_once_and_then_requests_the_blob():
    scene = world()
    settle(scene, deaf="d1")
    assert scene.egress == AHEAD
    scene.pass_time(STALL_S)
    ends = [packet.content for packet in scene.network if isinstance(packet.content, BroadcastEnd)]
    assert [end.device for end in ends] == ["d1"]
    settle(scene, deaf="d1")
    assert have_all(scene) == [True] * 3
    # All chunks were sent twice: published for the others, and requested by d1.
    assert scene.egress == 2 * CHUNKS


def test_a_device_that_repeats_its_report_is_waited_for_no_longer_than_a_silent_one():
    scene = world()
    settle(scene, deaf="d1")
    task = scene.federation.participants["d1"].assignment.task
    report = BroadcastProgress(
        federation="home",
        device="d1",
        run=task.run,
        attempt=task.attempt,
        digest=task.blobs["state"].digest,
        index=0,
    )
    # Only the first report is new; after two more, at half of STALL_S each, the server stops waiting.
    for _ in range(3):
        scene.network.append(Packet("d1", True, report))
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


def test_a_device_that_restarts_requests_the_missing_chunks():
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


def test_a_server_that_lost_its_broadcast_answers_requests():
    scene = world()
    while scene.egress == 0:
        scene.deliver()
    # A state that recovery reads from a journal has no broadcast.
    scene.federation = type(scene.federation)(**{**vars(scene.federation), "broadcast": None})
    settle(scene)
    scene.pass_time(BROADCAST_PATIENCE_S)
    settle(scene)
    assert have_all(scene) == [True] * 3


def test_a_restarted_server_makes_listening_devices_request_the_blob():
    scene = world()
    settle(scene, deaf="d1")
    assert have_all(scene) == [False] * 3
    # The participants as recovery reads them from the journal: offered a task, no answer known.
    parts = scene.federation.participants
    again = (replace(part, status=Status.OFFERED, offer_at=0.0) for part in parts.values())
    scene.federation = replace(scene.federation, broadcast=None, participants=Participants.of(again))
    scene.on_server(on_server.Tick())
    settle(scene)
    assert have_all(scene) == [True] * 3


def test_a_device_that_was_briefly_away_is_not_waited_for():
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
        contents = [packet.content for packet in scene.network if packet.device == "d0"]
        replies = [content for content in contents if isinstance(content, TaskReply)]
    assert replies[0].listens == ()
    settle(scene)
    assert have_all(scene) == [True] * 3
    assert scene.egress == CHUNKS


def test_a_blob_that_all_devices_have_is_not_published():
    scene = world()
    ref = scene.federation.participants["d0"].assignment.task.blobs["state"]
    for node in scene.nodes.values():
        node.session = replace(node.session, held=frozenset({ref.digest}))
    settle(scene)
    assert have_all(scene) == [True] * 3
    assert scene.egress == 0


def test_a_report_of_unpublished_chunks_changes_nothing():
    scene = world()
    task = scene.federation.participants["d0"].assignment.task
    common = {"federation": "home", "device": "d9", "run": task.run, "attempt": task.attempt}
    for digest, index in (("0" * 64, 0), (task.blobs["state"].digest, 10_000)):
        scene.network.append(Packet("d0", True, BroadcastProgress(**common, digest=digest, index=index)))
    settle(scene)
    assert have_all(scene) == [True] * 3


def test_a_chunk_of_another_blob_is_ignored_on_a_shared_topic():
    scene = world()
    settle(scene)
    before = scene.nodes["d0"].session
    scene.on_device("d0", ChunkArrived(Chunk("0" * 16, 0, b"x"), shared=True))
    assert scene.nodes["d0"].session.task == before.task


def claims(scene: World) -> dict[str, int | None]:
    """Finish all work; return the bytes that each device claims to have received on shared topics."""
    for name in scene.nodes:
        scene.finish_work(name)
    contents = [packet.content for packet in scene.network]
    updates = [content for content in contents if isinstance(content, Update)]
    return {update.device: update.heard_bytes for update in updates}


FRAMES = CHUNKS * (CHUNK + CHUNK_HEADER_BYTES) - 7


def test_an_update_contains_the_bytes_received_on_shared_topics():
    scene = world()
    settle(scene, lossy="d1", lost=(3, 4, 17))
    lost = 3 * (CHUNK + CHUNK_HEADER_BYTES)
    assert claims(scene) == {"d0": FRAMES, "d1": FRAMES - lost, "d2": FRAMES}


def test_a_restarted_device_does_not_know_how_much_it_received():
    scene = world()
    for _ in range(30):
        scene.deliver()
    scene.kill_and_remember("d1")
    scene.connect("d1")
    settle(scene)
    assert claims(scene)["d1"] is None


def test_a_publication_names_the_listening_devices():
    scene = world()
    published: Counter[str] = Counter()
    publish = scene.publish_chunks

    def counted(command: on_server.Publish) -> None:
        published.update(dict.fromkeys(command.listeners, command.count))
        publish(command)

    scene.publish_chunks = counted  # type: ignore[method-assign]
    settle(scene, deaf="d1")
    scene.pass_time(STALL_S)
    settle(scene, deaf="d1")
    # Once d1 is notified to request the rest, nothing more is published for it.
    assert published == {"d0": CHUNKS, "d1": AHEAD, "d2": CHUNKS}
