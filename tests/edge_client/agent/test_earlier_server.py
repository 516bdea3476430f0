"""A server of the version before refuses births with later fields; the device repeats them without."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from edge_client.agent.announcer import Announcer
from edge_client.agent.eligibility.monitor import EligibilityMonitor
from edge_client.agent.messenger import Messenger
from edge_client.agent.presence import Presence
from edge_client.agent.settings import AgentSettings
from edge_client.data.local import LocalData
from edge_client.data.sources import load_source
from edge_client.transport.broker_address import parse_address
from edge_client.transport.link_events import LinkUp
from schemas.messages import Birth, Refusal
from schemas.topics import Channel
from schemas.values import CapabilityProfile, Reason, SkippedFiles

LATER = Refusal(
    federation="home",
    device="pi",
    reason=Reason.MALFORMED,
    detail="malformed birth: birth.labels: Extra inputs are not permitted",
)
UNKNOWN = LATER.model_copy(update={"reason": Reason.TOO_MANY_REQUESTS, "detail": "not known here"})


class Births:
    """An announcer's messenger that keeps the births."""

    def __init__(self, state: Path) -> None:
        address = parse_address("mqtt://127.0.0.1:1")
        settings = AgentSettings(
            "home", "pi", address, state, "digits", CapabilityProfile(), labels={"site": "barn"}
        )
        data = LocalData(load_source("digits"), load_source("digits"))
        monitor = EligibilityMonitor.of_board(settings.eligibility, cores=1, root=state)
        self.made: list[Birth] = []
        self.presence = Presence(settings, data)
        self.announcer = Announcer(settings, self.presence, cast(Messenger, self), monitor)

    def publish(self, channel: Channel, message: Any, *, retain: bool = False) -> None:
        assert (channel, retain) == (Channel.BIRTH, True)
        self.made.append(message)


@pytest.fixture
def births(tmp_path: Path) -> Births:
    births = Births(tmp_path)
    births.announcer.connected(LinkUp(1, None), 0.0)
    return births


def test_a_refused_birth_is_repeated_without_labels_and_model(births: Births) -> None:
    births.announcer.refused(LATER)
    births.announcer.refused(LATER)
    assert [birth.labels for birth in births.made] == [{"site": "barn"}, {}]
    assert b'"labels"' not in births.made[-1].model_dump_json().encode()
    assert not births.made[-1].prunes_first
    births.announcer.announce()
    assert births.made[-1].labels == {}


def test_a_server_that_knows_labels_still_gets_them(births: Births) -> None:
    refusal = "malformed birth: birth.prunes_first: Extra inputs are not permitted"
    births.announcer.refused(LATER.model_copy(update={"detail": refusal}))
    assert [birth.prunes_first for birth in births.made] == [True, False]
    assert [birth.labels for birth in births.made] == [{"site": "barn"}, {"site": "barn"}]
    births.announcer.refused(LATER)
    assert births.made[-1].labels == {}


def test_other_refusals_change_nothing(births: Births) -> None:
    births.announcer.refused(LATER.model_copy(update={"detail": "malformed birth: birth.data: missing"}))
    assert [birth.labels for birth in births.made] == [{"site": "barn"}]


def test_a_server_that_asks_who_is_there_may_be_a_later_one(births: Births) -> None:
    births.announcer.refused(LATER)
    births.announcer.refused(UNKNOWN)
    births.announcer.announce()
    assert births.made[-1].labels == {"site": "barn"}


@pytest.mark.parametrize(("refused", "left"), [("columns", {"skipped"}), ("skipped", set())])
def test_what_a_server_does_not_know_of_the_data_is_left_out(
    births: Births, refused: str, left: set[str]
) -> None:
    data = replace(load_source("digits"), skipped=SkippedFiles(files=1, of=9, first="a.png is broken"))
    births.presence.describe(LocalData(data, data))
    refusal = f"malformed birth: birth.data.{refused}: Extra inputs are not permitted"
    births.announcer.refused(LATER.model_copy(update={"detail": refusal}))
    made = births.made[-1]
    assert {"skipped", "columns"} & made.model_dump()["data"].keys() == left
    assert (made.labels, made.trains_sharply) == ({"site": "barn"}, True)
