"""The rollout service: messages that it handles over the broker, and messages that it refuses."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edge_client.transport.broker_link import Arrived, LinkDown, LinkUp, parse_address
from edge_server.releases.registry.registry import Registry
from edge_server.releases.rollout.groups import MODELS
from edge_server.releases.rollout.journal import RolloutJournal
from edge_server.releases.rollout.machine import step
from edge_server.releases.rollout.progress import waiting_for
from edge_server.releases.rollout.service import GaveUp, Interrupted, RolloutService
from edge_server.releases.rollout.state import Connected, Rollout, RolloutPhase
from edge_server.releases.rollout.target import Target, TargetStatus
from schemas.errors import PeerError, Reason
from schemas.messages import BlobRequest, Death, Telemetry, decode_message, encode_message
from schemas.tensors.chunks import SMALL_CHUNK_BYTES, digest_of
from schemas.topics import Channel, DeviceTopic
from tests.edge_server.releases.rollout.fleet import FEDERATION, FILES, RULES, VERSION, birth

DATA = bytes(range(256)) * 1172


class FakeLink:
    """Stores published messages and chunks instead of sending them."""

    def __init__(self, _: Any, inbox: Any, **named: Any) -> None:
        self.inbox = inbox
        self.named, self.published, self.frames = named, list[tuple[str, bytes]](), list[bytes]()

    def handle(self, event: Any) -> None:
        """Does nothing."""

    def open(self) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""

    def fit(self, chunk_bytes: int) -> None:
        """Accepts any chunk size."""

    def echo(self, topic: str, payload: bytes) -> None:
        self.inbox.put(Arrived(topic, payload))

    def publish(self, topic: str, payload: bytes) -> None:
        self.published.append((topic, payload))

    def send_chunk(self, key: Any, topic: str, read: Any) -> None:
        assert topic.endswith("/down/blob")
        self.frames.append(read())


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RolloutService:
    monkeypatch.setattr("edge_server.transport.broker_connection.Link", FakeLink)
    journal = RolloutJournal(Registry(tmp_path / "registry"))
    rollout = Rollout("r-1", VERSION, FEDERATION, RULES.model_copy(update={"gather_s": 0.0}), FILES, MODELS)
    journal.begin(rollout)
    path = tmp_path / "tier-1.onnx"
    path.write_bytes(DATA[:300_000])
    files = {FILES[1].ref.digest: path}
    shown: list[Any] = []
    address = parse_address("mqtt://127.0.0.1:1")
    service = RolloutService(rollout, journal, address, files, lambda *seen: shown.append(seen))
    service.shown = shown
    return service


def connect(service: RolloutService, max_packet: int | None = None) -> None:
    """Bring the link up and handle the messages that the service sends to itself."""
    service.loop.handle(LinkUp(1, max_packet))
    while not service.inbox.empty():
        service.loop.handle(service.inbox.get())


def hear(
    service: RolloutService, message: Any, *, channel: Channel = Channel.UP_ROLLOUT, device: str = ""
) -> None:
    topic = DeviceTopic(FEDERATION, device or message.device, channel)
    service.loop.handle(Arrived(str(topic), encode_message(message)))


def test_a_device_that_sends_a_birth_is_offered_the_model_and_receives_chunks(service) -> None:
    connect(service)
    hear(service, birth("pi"), channel=Channel.BIRTH)
    ((topic, payload),) = service.connection.link.published
    assert topic == "fed/v1/home/devices/pi/down/rollout"
    offer = decode_message(payload)
    assert (offer.kind, offer.blob) == ("model-offer", FILES[1].ref)
    request = {"federation": FEDERATION, "device": "pi", "digest": offer.blob.digest, "first": 1, "count": 64}
    hear(service, BlobRequest(**request))
    # 300,000 bytes in chunks of 262,144: the second and last has the rest, after a header of 20 bytes.
    assert [len(frame) for frame in service.connection.link.frames] == [20 + 300_000 - 262_144]


def test_the_rollout_has_its_own_client_id(service) -> None:
    assert service.connection.link.named["client_id"] == "home-rollout"


def test_chunks_are_small_for_a_broker_with_small_packets(service) -> None:
    connect(service, 128 * 1024)
    assert service.rollout.files[1].ref.chunk_bytes == SMALL_CHUNK_BYTES


@pytest.mark.parametrize(
    ("message", "device", "reason"),
    [
        (birth("pi"), "other", Reason.WRONG_SENDER),
        (Telemetry(federation=FEDERATION, device="pi", session=1, phase="idle"), "pi", Reason.UNKNOWN_KIND),
        (birth("pi").model_copy(update={"federation": "work"}), "pi", Reason.WRONG_FEDERATION),
    ],
)
def test_messages_that_do_not_belong_to_a_rollout_are_refused(
    service, message: Any, device: str, reason: Reason
) -> None:
    with pytest.raises(PeerError) as refused:
        hear(service, message, device=device)
    assert refused.value.reason == reason


@pytest.mark.parametrize("payload", [b"junk", b"{}", b"\xff" * 99])
def test_invalid_messages_do_not_end_a_rollout(service, payload: bytes) -> None:
    service.inbox.put(Arrived(str(DeviceTopic(FEDERATION, "pi", Channel.UP_ROLLOUT)), payload))
    service.loop.turn()
    assert service.rollout.phase is RolloutPhase.GATHERING


def test_a_cleared_retained_message_is_ignored(service) -> None:
    before = service.rollout
    service.loop.handle(Arrived(str(DeviceTopic(FEDERATION, "pi", Channel.BIRTH)), b""))
    assert service.rollout is before


def test_a_lost_link_is_shown(service) -> None:
    service.loop.handle(LinkDown("nobody listens"))
    assert "nobody listens; trying again" in service.shown[-1][1]


def test_ctrl_c_interrupts_the_rollout_without_ending_it(service) -> None:
    service.interrupt()
    with pytest.raises(Interrupted, match="the same command continues it"):
        service.loop.handle(service.inbox.get())


def test_a_request_for_a_digest_of_another_file_is_not_answered(service) -> None:
    connect(service)
    hear(service, birth("pi"), channel=Channel.BIRTH)
    other = digest_of(b"another file of the registry")
    hear(service, BlobRequest(federation=FEDERATION, device="pi", digest=other, first=0, count=1))
    assert service.connection.link.frames == []


def give_up_at(service: RolloutService, now: float) -> None:
    """Let the service wait from 0, when births have arrived, to `now`; one second at most."""
    service.give_up_s = 1.0
    service.rollout = replace(service.rollout, gather_until=0.0)
    service.loop.tick(0.0)
    service.loop.tick(now)


def test_a_rollout_without_devices_gives_up_and_leaves_nothing_to_continue(service) -> None:
    connect(service)
    service.loop.turn()
    give_up_at(service, 0.9)
    assert not service.rollout.over
    service.loop.tick(1.0)
    with pytest.raises(GaveUp, match=r"gave up after 1 s \(--give-up\): no device is online"):
        service.run()
    (entry,) = service.journal.newest(FEDERATION)
    assert entry.over


def test_a_rollout_for_nobody_who_is_there_says_so(service) -> None:
    connect(service)
    rules = service.rollout.rules.model_copy(update={"only": ("pi-9",)})
    service.rollout = replace(service.rollout, rules=rules)
    hear(service, birth("pi"), channel=Channel.BIRTH)
    give_up_at(service, 1.0)
    with pytest.raises(GaveUp, match="no device that is chosen is online"):
        service.run()


def test_a_rollout_whose_devices_are_gone_gives_up_and_can_be_continued(service) -> None:
    connect(service)
    hear(service, birth("pi"), channel=Channel.BIRTH)
    hear(service, Death(federation=FEDERATION, device="pi", session=1), channel=Channel.BIRTH)
    with pytest.raises(GaveUp, match="waiting for pi: offline; the same command continues it"):
        give_up_at(service, 1.0)
    (entry,) = service.journal.newest(FEDERATION)
    assert not entry.over


def test_a_device_that_died_with_the_broker_is_not_waited_for_either(service) -> None:
    connect(service)
    hear(service, birth("pi"), channel=Channel.BIRTH)
    silent = replace(service.rollout.targets["pi"], status=TargetStatus.AWAY)
    service.rollout = service.rollout.with_target(silent)
    with pytest.raises(GaveUp, match="waiting for pi"):
        give_up_at(service, 1.0)


def test_a_continued_rollout_calls_no_device_offline_before_births_may_have_arrived() -> None:
    running = Rollout("r-1", VERSION, FEDERATION, RULES, FILES, MODELS, RolloutPhase.RUNNING)
    rollout, _ = step(
        running.with_target(Target("pi", 1, 0, TargetStatus.WATCHING, deadline=1e3)), Connected(64), 0.0
    )
    assert [waiting_for(rollout, now) for now in (0.0, RULES.gather_s)] == ["", "waiting for pi: offline"]


def test_a_rollout_without_a_broker_gives_up(service) -> None:
    service.connection.trouble = "no connection to mqtt://127.0.0.1:1"
    service.give_up_s = 0.0
    service.loop.tick(0.0)
    assert service.rollout.over


def test_a_rollout_that_goes_on_never_gives_up(service) -> None:
    connect(service)
    hear(service, birth("pi"), channel=Channel.BIRTH)
    give_up_at(service, 1e9)
    assert service.rollout.phase is RolloutPhase.RUNNING
