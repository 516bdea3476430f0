"""Two devices of one name and no server: exactly one of them ends, whatever they see of each other."""

import random
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from edge_client.transport.broker_link import Arrived, LinkUp
from schemas.errors import ConfigError
from schemas.messages import Birth, Death, encode_message
from schemas.topics import Channel, DeviceTopic
from tests.edge_client.agent.births import Births

TOPIC = DeviceTopic("home", "pi", Channel.BIRTH)
SEEN: dict[str, Callable[[Birth], Birth | Death]] = {
    "births": lambda birth: birth,
    "wills": lambda birth: Death(federation="home", device="pi", session=birth.session),
}
"""A connection of the one ends that of the other: the broker replaces its birth by its last will."""


def start(state: Path, session: int) -> Births:
    state.mkdir()
    device = Births(state)
    device.announcer.on_connected(LinkUp(session, None), 0.0)
    return device


def see(device: Births, message: Birth | Death) -> None:
    device.announcer.receive(TOPIC, Arrived(str(TOPIC), encode_message(message), True))


def ended(devices: Iterable[Births], seen: str, rounds: range) -> list[Births]:
    """The devices that end, if each connects in turn and sees what the other's last birth has become."""
    here, gone = list(devices), []
    for session in rounds:
        device = here[session % len(here)]
        device.announcer.on_connected(LinkUp(session, None), 0.0)
        for other in here:
            if other is not device:
                try:
                    see(device, SEEN[seen](other.made[-1]))
                except ConfigError:
                    gone.append(device)
        here = [device for device in here if device not in gone]
    return gone


@pytest.mark.parametrize("seen", SEEN)
def test_the_later_one_ends(tmp_path: Path, seen: str) -> None:
    first, later = start(tmp_path / "a", 1), start(tmp_path / "b", 3)
    see(later, SEEN[seen](first.made[0]))
    assert ended([first, later], seen, range(4, 40)) == [later]


@pytest.mark.parametrize("seen", SEEN)
def test_of_two_that_each_take_the_other_for_later_one_ends(
    tmp_path: Path, seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Neither has seen the other's first birth.
    monkeypatch.setattr(random, "random", random.Random(0).random)
    assert len(ended([start(tmp_path / "a", 1), start(tmp_path / "b", 2)], seen, range(3, 60))) == 1


@pytest.mark.parametrize("seen", SEEN)
def test_what_it_has_sent_itself_is_not_foreign(tmp_path: Path, seen: str) -> None:
    device = start(tmp_path / "a", 5)
    for session in range(6, 20):
        device.announcer.on_connected(LinkUp(session, None), 0.0)
        for birth in device.made:
            see(device, SEEN[seen](birth))


def test_births_of_its_process_before_are_not_foreign(tmp_path: Path) -> None:
    before, now = start(tmp_path / "a", 5), start(tmp_path / "b", 6)
    for _ in range(20):
        see(now, before.made[0])
