"""Which tasks remain valid after a round announcement."""

import json

import pytest

from schemas.errors import PeerError
from schemas.messages import RoundAnnouncement, decode_message, encode_message

FIELDS = {
    "kind": "round-announcement",
    "federation": "home",
    "run": "run-1",
    "round": 3,
    "rounds": 9,
    "phase": "training",
    "selected": 2,
}


def decoded(**more: object) -> RoundAnnouncement:
    message = decode_message(json.dumps({**FIELDS, **more}).encode())
    assert isinstance(message, RoundAnnouncement)
    return message


def test_by_default_only_tasks_of_the_announced_round_remain_valid():
    assert decoded().oldest == 3


def test_tasks_of_earlier_rounds_may_remain_valid():
    message = decoded(oldest=1)
    assert message.oldest == 1
    assert decode_message(encode_message(message)) == message


@pytest.mark.parametrize("fields", [{"oldest": 4}, {"oldest": -1}, {"oldest": None}, {"round": "three"}])
def test_an_inconsistent_announcement_is_refused(fields):
    with pytest.raises(PeerError, match="malformed round-announcement"):
        decoded(**fields)
