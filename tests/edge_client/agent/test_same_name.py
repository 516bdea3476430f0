"""Two devices of one name and no server: exactly one of them ends, whatever they see of each other."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from edge_client.transport.link_events import Arrived, LinkUp
from schemas.errors import ConfigError
from schemas.messages import Birth, encode_message
from schemas.topics import Channel, DeviceTopic
from tests.edge_client.agent.test_earlier_server import Births

TOPIC = DeviceTopic("home", "pi", Channel.BIRTH)


def start(state: Path, session: int, instance: str) -> Births:
    state.mkdir()
    device = Births(state)
    device.presence.instance = instance
    device.announcer.connected(LinkUp(session, None), 0.0)
    return device


def see(device: Births, birth: Birth) -> None:
    device.announcer.receive(TOPIC, Arrived(str(TOPIC), encode_message(birth), True))


def ended(devices: Iterable[Births], rounds: range) -> list[Births]:
    """The devices that end, if each connects in turn and sees the other's last birth, as often as that."""
    here, gone = list(devices), []
    for session in rounds:
        for device in list(here):
            device.announcer.connected(LinkUp(session, None), 0.0)
            for other in here:
                if other is not device:
                    try:
                        see(device, other.made[-1])
                    except ConfigError:
                        gone.append(device)
            here = [device for device in here if device not in gone]
    return gone


def test_the_later_one_ends(tmp_path: Path) -> None:
    first, later = start(tmp_path / "a", 1, "b"), start(tmp_path / "b", 3, "a")
    see(later, first.made[0])
    assert ended([first, later], range(4, 20)) == [later]


@pytest.mark.parametrize("instances", ["ab", "ba"])
def test_of_two_that_each_take_the_other_for_later_one_ends(tmp_path: Path, instances: str) -> None:
    one, other = start(tmp_path / "a", 1, instances[0]), start(tmp_path / "b", 2, instances[1])
    # Neither has seen the other's first birth.
    assert ended([one, other], range(3, 20)) == [max(one, other, key=lambda device: device.presence.instance)]


def test_its_own_births_are_no_foreign_ones(tmp_path: Path) -> None:
    device = start(tmp_path / "a", 5, "a")
    for session in range(6, 20):
        device.announcer.connected(LinkUp(session, None), 0.0)
        for birth in device.made:
            see(device, birth)


def test_births_of_its_process_before_are_no_foreign_ones(tmp_path: Path) -> None:
    before, now = start(tmp_path / "a", 5, "b"), start(tmp_path / "b", 6, "a")
    for _ in range(20):
        see(now, before.made[0])
