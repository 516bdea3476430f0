"""Which tasks an announcement leaves in force."""

import json

import pytest

from schemas.errors import PeerError
from schemas.messages import RoundAnnouncement, decode_message, encode_message

SAID = {
    "kind": "round-announcement",
    "federation": "home",
    "run": "run-1",
    "round": 3,
    "rounds": 9,
    "phase": "training",
    "selected": 2,
}


def decoded(**more: object) -> RoundAnnouncement:
    message = decode_message(json.dumps({**SAID, **more}).encode())
    assert isinstance(message, RoundAnnouncement)
    return message


def test_unless_stated_only_tasks_of_the_round_are_wanted():
    assert decoded().oldest == 3


def test_tasks_of_earlier_rounds_may_be_wanted_too():
    message = decoded(oldest=1)
    assert message.oldest == 1
    assert decode_message(encode_message(message)) == message


@pytest.mark.parametrize("odd", [{"oldest": 4}, {"oldest": -1}, {"oldest": None}, {"round": "three"}])
def test_an_announcement_that_contradicts_itself_is_refused(odd):
    with pytest.raises(PeerError, match="malformed round-announcement"):
        decoded(**odd)
