"""At a real Mosquitto, a device's certificate permits its own topics and no others.

Mosquitto acknowledges a forbidden publish under MQTT 3.1.1 like a permitted one, and grants every
subscription, so these tests check which messages arrive.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from edge_client.transport.broker_link import BrokerAddress, TlsFiles
from edge_server.security.identity.authority import Authority
from schemas import topics
from tests.edge_server.security.identity.clients import V5, V311, Client, refusal
from tests.edge_server.security.identity.conftest import (
    FEDERATION,
    Mosquitto,
    address_of,
    identity,
    new_authority,
    server_files,
)

VERSIONS = pytest.mark.parametrize("version", [V311, V5], ids=["3.1.1", "5"])
Connect = Callable[..., Client]


@pytest.fixture
def connect() -> Iterator[Connect]:
    clients: list[Client] = []

    def start(address: BrokerAddress, **options: object) -> Client:
        clients.append(Client(address, **options))  # type: ignore[arg-type]
        return clients[-1]

    yield start
    for client in clients:
        client.close()


@pytest.fixture(scope="module")
def addresses(
    authority: Authority, mosquitto: Mosquitto, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, BrokerAddress]:
    """The broker address with the certificate of each service and two devices."""
    folder, service = tmp_path_factory.mktemp("devices"), authority.folder / "service"
    rollout = authority.folder / "rollout"
    files = {name: identity(authority, name, folder / name) for name in ("a", "b")}
    files["server"] = server_files(authority)
    files["service"] = TlsFiles(service / "ca.pem", service / "service.pem", service / "service.key")
    files["rollout"] = TlsFiles(rollout / "ca.pem", rollout / "rollout.pem", rollout / "rollout.key")
    return {name: address_of(authority, file) for name, file in files.items()}


def topic(device: str, channel: topics.Channel) -> str:
    return str(topics.DeviceTopic(FEDERATION, device, channel))


UP = [channel for channel in topics.Channel if channel.startswith("up/")]
DOWN = [channel for channel in topics.Channel if channel.startswith("down/")]
OF_B = [topic("b", channel) for channel in topics.Channel]
NOT_OF_A = [
    *OF_B,
    *(topic("a", channel) for channel in DOWN),
    str(topics.StateTopic(FEDERATION)),
    f"fed/v1/{FEDERATION}/all/model",
    str(topics.EnrolTopic(FEDERATION, "b", "request")),
    str(topics.EnrolTopic(FEDERATION, "a", "answer")),
    str(topics.EnrolTopic(FEDERATION, "~0123456789abcdef", "answer")),
    topic("a", topics.Channel.UP).replace(FEDERATION, "other"),
    f"fed/v1/{FEDERATION}/devices/a/other",
    str(topics.PredictTopic(FEDERATION, "a", "request")),
    *(str(topics.PredictTopic(FEDERATION, "b", part)) for part in ("request", "answer")),
    *(str(topics.SiteTopic(FEDERATION, "b", channel, "b.pi")) for channel in sorted(topics.SITE_CHANNELS)),
    *(
        str(topics.SiteTopic(FEDERATION, "a", channel))
        for channel in sorted(topics.SITE_CHANNELS)
        if channel in DOWN
    ),
    f"fed/v1/{FEDERATION}/devices",
    "anything",
]


@VERSIONS
def test_a_device_publishes_to_its_own_topics_and_the_server_receives_it(addresses, connect, version):
    server, device = connect(addresses["server"]), connect(addresses["a"], version=version)
    server.subscribe(f"fed/v1/{FEDERATION}/devices/+/up/#")
    for channel in UP:
        device.publish(topic("a", channel))
    assert [server.hear()[0] for _ in UP] == [topic("a", channel) for channel in UP]


@VERSIONS
def test_a_gateway_speaks_for_its_site_and_hears_what_is_for_it_alone(addresses, connect, version):
    server, gateway = connect(addresses["server"]), connect(addresses["a"], version=version)
    server.subscribe(f"fed/v1/{FEDERATION}/sites/+/up/#")
    gateway.subscribe("#")
    said = [
        str(topics.SiteTopic(FEDERATION, "a", channel, device))
        for channel in sorted(topics.SITE_CHANNELS)
        for device in ("", "a.pi")
    ]
    up, down = ([one for one in said if f"/{way}/" in one] for way in ("up", "down"))
    for one in up:
        gateway.publish(one)
    assert [server.hear()[0] for _ in up] == up
    server.publish(str(topics.SiteTopic(FEDERATION, "b", topics.Channel.DOWN, "b.pi")))
    for one in down:
        server.publish(one)
    assert [gateway.hear()[0] for _ in down] == down


@VERSIONS
def test_a_device_receives_only_its_own_and_common_messages(addresses, connect, version):
    server, device = connect(addresses["server"]), connect(addresses["a"], version=version)
    device.subscribe("#")
    for channel in DOWN:
        server.publish(topic("b", channel))
    other = connect(addresses["b"])
    for channel in UP:
        other.publish(topic("b", channel))
    server.publish(str(topics.StateTopic(FEDERATION)))
    server.publish(topic("a", topics.Channel.DOWN))
    assert device.hear()[0] == str(topics.StateTopic(FEDERATION))
    assert device.hear()[0] == topic("a", topics.Channel.DOWN)
    assert device.everything_heard() == []


@VERSIONS
@pytest.mark.parametrize("retain", [False, True], ids=["live", "retained"])
def test_forbidden_messages_of_a_device_reach_no_client(addresses, connect, version, retain):
    """A forwarded message would arrive before the honest ones, which are sent later."""
    listeners = {name: connect(addresses[name]) for name in ("server", "service", "b")}
    for listener in listeners.values():
        listener.subscribe("#")
    device, server = connect(addresses["a"], version=version), listeners["server"]
    for forbidden in NOT_OF_A:
        answer = device.publish(forbidden, b"forged", retain=retain)
        assert version is V311 or answer.getName() == "Not authorized"
    device.publish(topic("a", topics.Channel.UP), b"honest")
    device.publish(str(topics.EnrolTopic(FEDERATION, "a", "request")), b"honest")
    server.publish(topic("b", topics.Channel.DOWN), b"honest")
    received = {name: [listener.hear()] for name, listener in listeners.items()}
    late = connect(addresses["server"])
    late.subscribe("#")
    late.publish(str(topics.StateTopic(FEDERATION)), b"end")
    assert received == {
        "server": [(topic("a", topics.Channel.UP), b"honest")],
        "service": [(str(topics.EnrolTopic(FEDERATION, "a", "request")), b"honest")],
        "b": [(topic("b", topics.Channel.DOWN), b"honest")],
    }
    retained = [message for message in (late.hear(), *late.everything_heard()) if message[1] == b"forged"]
    assert retained == []


@VERSIONS
def test_the_server_receives_the_answer_of_a_prediction_service(addresses, connect, version):
    server, service, other = (connect(addresses[name], version=version) for name in ("server", "a", "b"))
    for client in (server, service, other):
        client.subscribe(f"fed/v1/{FEDERATION}/devices/a/predict/+")
    request, answer = (str(topics.PredictTopic(FEDERATION, "a", part)) for part in ("request", "answer"))
    server.publish(request)
    assert service.hear()[0] == request
    service.publish(answer)
    assert server.hear()[0] == answer
    assert other.everything_heard() == []


def test_a_last_will_is_subject_to_the_same_rules(addresses, connect):
    """Otherwise a device could report the death of another one."""
    server = connect(addresses["server"])
    server.subscribe(f"fed/v1/{FEDERATION}/devices/+/up/#")
    for device in ("b", "a"):
        connect(addresses["a"], will=topic(device, topics.Channel.BIRTH)).cut()
    assert server.hear() == (topic("a", topics.Channel.BIRTH), b"will")
    assert server.everything_heard() == []


@VERSIONS
def test_a_device_cannot_take_over_the_session_of_another(addresses, connect, version):
    """A client of device a requests b's identifier and gets its own."""
    victim = connect(addresses["b"], client_id="b", version=version)
    victim.subscribe(f"fed/v1/{FEDERATION}/devices/b/down/#")
    thief = connect(addresses["a"], client_id="b", version=version)
    thief.subscribe(f"fed/v1/{FEDERATION}/devices/b/down/#")
    server = connect(addresses["server"])
    server.publish(topic("b", topics.Channel.DOWN), b"for b")
    assert victim.hear() == (topic("b", topics.Channel.DOWN), b"for b")
    server.publish(topic("a", topics.Channel.DOWN), b"for a")
    assert thief.everything_heard() == []
    # Both are still connected.
    victim.publish(topic("b", topics.Channel.UP))
    thief.publish(topic("a", topics.Channel.UP))


def test_the_server_cannot_publish_as_a_device_or_read_messages_to_it(addresses, connect):
    device, server = connect(addresses["b"]), connect(addresses["server"])
    server.subscribe("#")
    for forbidden in (topic("a", topics.Channel.UP), str(topics.EnrolTopic(FEDERATION, "a", "answer"))):
        assert server.publish(forbidden).getName() == "Not authorized"
    server.publish(topic("a", topics.Channel.DOWN))
    device.publish(topic("b", topics.Channel.UP), b"next")
    assert server.hear() == (topic("b", topics.Channel.UP), b"next")


def test_a_rollout_can_only_receive_births_and_reports_and_send_offers_and_chunks(addresses, connect):
    """A rollout has a separate connection without the server's permissions for rounds."""
    device, rollout = connect(addresses["a"]), connect(addresses["rollout"])
    rollout.subscribe("#")
    device.subscribe(f"fed/v1/{FEDERATION}/devices/a/down/#")
    for channel in UP:
        device.publish(topic("a", channel))
    received = [rollout.hear()[0] for _ in range(2)]
    assert received == [topic("a", topics.Channel.BIRTH), topic("a", topics.Channel.UP_ROLLOUT)]
    for channel in (topics.Channel.DOWN, topics.Channel.UP, topics.Channel.UP_ROLLOUT):
        assert rollout.publish(topic("a", channel)).getName() == "Not authorized"
    for channel in (topics.Channel.DOWN_ROLLOUT, topics.Channel.DOWN_BLOB):
        rollout.publish(topic("a", channel))
    assert [device.hear()[0] for _ in range(2)] == [
        topic("a", topics.Channel.DOWN_ROLLOUT),
        topic("a", topics.Channel.DOWN_BLOB),
    ]


def test_an_enrolled_device_can_connect(addresses):
    assert refusal(addresses["a"]) == ""


def test_a_certificate_of_another_authority_is_refused(addresses, authority, tmp_path):
    other = identity(new_authority(tmp_path / "other"), "a", tmp_path / "a")
    ca = addresses["a"].tls.ca
    reason = refusal(address_of(authority, TlsFiles(ca, other.certificate, other.key)))
    assert "unknown ca" in reason


def test_an_expired_certificate_is_refused(addresses, authority, tmp_path):
    before = replace(authority, clock=lambda: time.time() - 366 * 86_400)
    reason = refusal(address_of(authority, identity(before, "a", tmp_path / "a")))
    assert "expired" in reason


def test_a_client_without_a_certificate_is_refused(addresses, authority):
    reason = refusal(address_of(authority, TlsFiles(addresses["a"].tls.ca)))
    assert "did not return a certificate" in reason or "handshake failure" in reason
