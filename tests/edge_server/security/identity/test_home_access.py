"""At a real Mosquitto, only Home Assistant's account may press the install button."""

from collections.abc import Callable, Iterator

import pytest

from edge_client.transport.broker_link import BrokerAddress, TlsFiles
from edge_server.cli.main import main
from edge_server.observability.integrations.home_assistant.topics import HomeAssistantTopics
from edge_server.security.identity.authority import Authority
from edge_server.security.identity.mosquitto import SERVICE_IDENTITIES
from edge_server.security.identity.settings import service_broker_address
from schemas.topics import Channel, DeviceTopic
from tests.edge_server.security.identity import conftest
from tests.edge_server.security.identity.clients import Client

TOPICS = HomeAssistantTopics(conftest.FEDERATION)
BUTTON, STATE, CONFIG = TOPICS.of("a", "install"), TOPICS.of("a", "state"), TOPICS.config("a")
NCMD, NBIRTH = f"spBv1.0/Plant/NCMD/{conftest.FEDERATION}", f"spBv1.0/Plant/NBIRTH/{conftest.FEDERATION}"


@pytest.fixture
def connect(
    authority: Authority, mosquitto: conftest.Mosquitto, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Client]]:
    """Connect a service of the server or device `a`; the clients are closed after the test."""
    clients: list[Client] = []

    def start(name: str) -> Client:
        clients.append(Client(broker_address(authority, name, tmp_path_factory)))
        return clients[-1]

    yield start
    for client in clients:
        client.close()


def broker_address(authority: Authority, name: str, factory: pytest.TempPathFactory) -> BrokerAddress:
    if name in SERVICE_IDENTITIES:
        folder = authority.folder / name
        files = TlsFiles(folder / "ca.pem", folder / f"{name}.pem", folder / f"{name}.key")
        return conftest.address_of(authority, files)
    return conftest.address_of(authority, conftest.identity(authority, name, factory.mktemp(name) / name))


def test_home_assistants_edge_receives_a_press_of_the_button(connect) -> None:
    edge, home = connect("home"), connect("home-assistant")
    edge.subscribe(BUTTON.replace("/a/", "/+/"))
    home.publish(BUTTON, b"install")
    assert edge.hear() == (BUTTON, b"install")


@pytest.mark.parametrize("name", ["a", "server", "rollout", "service", "sparkplug", "scada-host"])
def test_other_clients_cannot_press_the_button(connect, name) -> None:
    edge, other = connect("home"), connect(name)
    edge.subscribe(BUTTON.replace("/a/", "/+/"))
    for topic in (BUTTON, STATE, CONFIG):
        assert other.publish(topic, b"forged").getName() == "Not authorized"
    connect("home-assistant").publish(BUTTON, b"honest")
    assert edge.hear() == (BUTTON, b"honest")


def test_home_assistant_receives_only_its_own_topics(connect) -> None:
    edge, home, device = connect("home"), connect("home-assistant"), connect("a")
    home.subscribe("#")
    birth = str(DeviceTopic(conftest.FEDERATION, "a", Channel.BIRTH))
    device.publish(birth)
    for topic in (STATE, CONFIG):
        edge.publish(topic, b"state")
    assert [home.hear() for _ in range(2)] == [(STATE, b"state"), (CONFIG, b"state")]
    for topic in (STATE, CONFIG, birth, str(DeviceTopic(conftest.FEDERATION, "a", Channel.DOWN))):
        assert home.publish(topic).getName() == "Not authorized"


def test_home_assistants_edge_cannot_publish_to_device_topics(connect) -> None:
    edge = connect("home")
    for channel in Channel:
        assert edge.publish(str(DeviceTopic(conftest.FEDERATION, "a", channel))).getName() == "Not authorized"
    assert edge.publish("homeassistant/device/others/a/config").getName() == "Not authorized"


def test_the_edge_node_and_a_scada_host_receive_each_others_messages(connect) -> None:
    node, host, device = connect("sparkplug"), connect("scada-host"), connect("a")
    node.subscribe(NCMD)
    host.subscribe("spBv1.0/#")
    node.publish(NBIRTH, b"birth")
    assert host.hear() == (NBIRTH, b"birth")
    host.publish(NCMD, b"rebirth")
    assert node.hear() == (NCMD, b"rebirth")
    assert host.publish(NBIRTH).getName() == "Not authorized"
    for topic in (NCMD, NBIRTH):
        assert device.publish(topic).getName() == "Not authorized"


def test_each_service_finds_its_certificate_next_to_the_servers(authority, connect) -> None:
    address = conftest.address_of(authority, conftest.server_files(authority))
    for name in ("home", "rollout", "sparkplug"):
        client = Client(service_broker_address(address, name, None, section="home-assistant"))
        client.close()


def test_the_retained_birth_of_a_revoked_device_is_cleared(authority, mosquitto, connect) -> None:
    birth = str(DeviceTopic(conftest.FEDERATION, "gone", Channel.BIRTH))
    connect("gone").publish(birth, b"born", retain=True)
    edge = connect("home")
    edge.subscribe(birth)
    assert edge.hear() == (birth, b"born")
    words = ["revoke", "gone", "--authority", str(authority.folder), "--mosquitto-pid", str(mosquitto.pid)]
    assert main(words) == 0
    assert edge.hear() == (birth, b"")
