"""What a server says waits for its standby; a standby that falls behind loses its right first."""

import queue
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_server.coordinator.standby.known_standby import NEARLY, SILENT_S, STUCK_S
from edge_server.coordinator.standby.shipper import FollowedRun, Shipper, StandbyOutput
from edge_server.coordinator.standby.standby_status import STATUS
from edge_server.storage.journal import Journal
from schemas.errors import PeerError
from schemas.messages import StandbyEntry, StandbyRefusal, StandbyReport, decode_message, encode_message


class LinkDouble:
    def __init__(self) -> None:
        self.messages: list = []
        self.chunks: list = []

    def publish(self, topic: str, payload: bytes) -> None:
        self.messages.append(decode_message(payload))

    def send_chunk(self, key: tuple, topic: str, read) -> None:
        self.chunks.append(key)


class LeaseDouble:
    """A lease whose messages count once the test says so."""

    def __init__(self) -> None:
        self.asked: str = ""
        self.named_standby: str | None = ""
        self.mute = False

    def name_standby(self, standby: str) -> None:
        self.asked = standby

    def counts(self) -> None:
        self.named_standby = self.asked


class Setup:
    def __init__(self, run: Path, **options: str) -> None:
        for name in ("models", "blobs"):
            (run / name).mkdir(parents=True, exist_ok=True)
        self.run, self.journal = run, Journal(run / "journal.sqlite")
        self.link, self.lease, self.said = LinkDouble(), LeaseDouble(), []
        followed = FollowedRun(run, self.journal, in_turn=lambda job: job(), **options)
        output = StandbyOutput("home", self.link)
        self.shipper = Shipper(followed, output, self.lease, queue.SimpleQueue())

    def report(self, now: float, confirmed: int = 0, standby: str = "s", known: int | None = None) -> None:
        series = self.entries[-1].series if self.entries and confirmed else ""
        message = StandbyReport(
            federation="home",
            standby=standby,
            series=series,
            known=confirmed if known is None else known,
            confirmed=confirmed,
        )
        self.shipper.hear(encode_message(message), now)
        self.shipper.announce()

    def say(self, word: str) -> None:
        self.shipper.gate(lambda: self.said.append(word))

    @property
    def entries(self) -> list[StandbyEntry]:
        return [message for message in self.link.messages if isinstance(message, StandbyEntry)]

    def followed(self) -> "Setup":
        self.report(0.0)
        self.report(1.0, confirmed=1)
        self.lease.counts()
        return self


@pytest.fixture
def setup(tmp_path: Path) -> Iterator[Setup]:
    setup = Setup(tmp_path)
    yield setup
    setup.shipper.close()
    setup.journal.close()


def test_a_server_without_a_standby_says_everything_at_once(setup: Setup) -> None:
    setup.journal.write_agreed_lists(["cat"])
    setup.say("a")
    assert setup.said == ["a"]


def test_a_standby_is_named_once_it_has_everything(setup: Setup) -> None:
    setup.report(0.0)
    setup.journal.write_agreed_lists(["cat"])
    setup.say("before")
    setup.report(1.0, confirmed=1)
    assert setup.lease.asked == ""
    setup.say("while it catches up")
    assert setup.said == ["before"]
    setup.report(1.5, confirmed=2)
    assert setup.lease.asked == "s"
    assert setup.said == ["before", "while it catches up"]
    assert '"follows":true' in (setup.run / STATUS).read_text()


def test_what_follows_from_an_entry_waits_until_it_is_confirmed_in_order(setup: Setup) -> None:
    setup.followed()
    setup.say("a")
    setup.journal.write_agreed_lists(["cat"])
    setup.say("b")
    setup.journal.write_agreed_lists(["dog"])
    setup.say("c")
    assert setup.said == ["a"]
    setup.report(2.0, confirmed=2)
    assert setup.said == ["a", "b"]
    setup.report(2.1, confirmed=3)
    assert setup.said == ["a", "b", "c"]


def test_a_silent_standby_loses_its_right_before_the_server_goes_on_alone(setup: Setup) -> None:
    setup.followed()
    setup.journal.write_agreed_lists(["cat"])
    setup.say("a")
    setup.shipper.tick(1.0 + SILENT_S)
    assert setup.lease.asked == ""
    assert setup.said == []
    setup.shipper.tick(1.1 + SILENT_S)
    assert setup.said == []
    setup.lease.counts()
    setup.shipper.tick(1.2 + SILENT_S)
    assert setup.said == ["a"]
    assert not (setup.run / STATUS).exists()


def test_a_standby_that_does_not_get_on_is_left_behind(setup: Setup) -> None:
    setup.followed()
    setup.journal.write_agreed_lists(["cat"])
    now = 1.0
    while now < 1.0 + STUCK_S + 1:
        setup.report(now := now + 1, confirmed=1)
        setup.shipper.tick(now)
        setup.lease.counts()
    setup.shipper.tick(now)
    setup.say("a")
    assert setup.said == ["a"]


def test_entries_that_were_not_heard_of_are_announced_again(setup: Setup) -> None:
    setup.followed()
    setup.journal.write_agreed_lists(["cat"])
    setup.shipper.announce()
    setup.report(2.0, confirmed=1, known=1)
    assert [entry.number for entry in setup.entries] == [1, 2, 2]


def refusals(setup: Setup) -> list[str]:
    return [message.standby for message in setup.link.messages if isinstance(message, StandbyRefusal)]


def test_a_second_standby_is_refused_once_the_first_is_heard_beside_it(setup: Setup) -> None:
    setup.followed()
    setup.report(2.0, standby="other")
    setup.report(2.5, confirmed=1)
    setup.report(3.0, standby="other")
    assert (refusals(setup), setup.lease.asked) == (["other"], "s")


def test_a_standby_that_was_killed_and_restarted_at_once_follows_again(setup: Setup) -> None:
    setup.followed()
    # The process before was heard at 1 s; the new one reports every second.
    for now in (1.2, 2.2, 3.2):
        setup.report(now, standby="restarted")
    assert setup.lease.asked == ""
    setup.lease.counts()
    setup.shipper.tick(3.3)
    for now in (4.2, 5.2):
        setup.report(now, standby="restarted")
    assert refusals(setup) == []
    assert setup.entries[-1].standby == "restarted"


def test_a_run_whose_state_must_stay_here_is_not_followed(tmp_path: Path) -> None:
    setup = Setup(tmp_path, refused="secret noise")
    setup.report(0.0)
    assert setup.link.messages == [StandbyRefusal(federation="home", standby="s", detail="secret noise")]
    setup.journal.close()


def test_other_messages_are_refused(setup: Setup) -> None:
    refusal = StandbyRefusal(federation="home", standby="s", detail="")
    with pytest.raises(PeerError):
        setup.shipper.hear(encode_message(refusal), 0.0)


def test_a_standby_that_is_far_behind_holds_nothing_up(setup: Setup) -> None:
    setup.report(0.0)
    for _ in range(NEARLY + 1):
        setup.journal.write_agreed_lists(["cat"])
    setup.report(1.0, confirmed=1)
    setup.say("a")
    assert setup.said == ["a"]


def test_a_standby_that_ends_while_it_catches_up_holds_nothing_up(setup: Setup) -> None:
    setup.report(0.0)
    setup.journal.write_agreed_lists(["cat"])
    setup.report(1.0, confirmed=1)
    setup.say("a")
    setup.shipper.tick(1.0 + SILENT_S)
    assert setup.said == ["a"]


def test_a_standby_that_nobody_would_hear_of_is_not_named(setup: Setup) -> None:
    setup.lease.mute = True
    setup.followed()
    assert (setup.lease.asked, setup.shipper.gate.closed) == ("", False)
