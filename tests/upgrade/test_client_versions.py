"""Which versions of the client talk with which versions of the server, as the guide states it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from edge_client.agent.presence import LATER_FIELDS
from edge_client.transport.link_events import LinkUp
from schemas.errors import PeerError
from schemas.messages import Birth, Refusal, decode_message, encode_message
from schemas.messages.message import PROTOCOL_RANGE
from schemas.values import Reason, SkippedFiles
from tests.deploy.pages import DOCS, ROOT
from tests.edge_client.agent.test_earlier_server import Births

GUIDE = (DOCS / "guides" / "fleet" / "upgrading.md").read_text(encoding="utf-8")
VERSIONS = range(len(LATER_FIELDS) + 1)
"""How many of the later fields a version knows; the last one is that of today."""


def whole_birth() -> dict[str, Any]:
    """A birth with every later field, as JSON."""
    path = ROOT / "tests" / "schemas" / "golden" / "birth.json"
    made = json.loads(path.read_text())
    later = {name: True for name in LATER_FIELDS if "." not in name}
    made |= later | {"labels": {"site": "barn"}, "model": "home-1", "can": ["warms_up"]}
    made["data"] |= {"skipped": SkippedFiles(files=1, of=9, first="a.png").model_dump(), "columns": []}
    return made


def field(birth: dict[str, Any], name: str) -> tuple[dict[str, Any], str]:
    """Where a field lies, and its name there."""
    part, dot, inner = name.partition(".")
    return (birth[part], inner) if dot else (birth, name)


@pytest.mark.parametrize("knows", VERSIONS)
def test_a_server_of_today_understands_every_earlier_client(knows: int) -> None:
    birth = whole_birth()
    for name in LATER_FIELDS[knows:]:
        place, inner = field(birth, name)
        place.pop(inner)
    read = decode_message(json.dumps(birth).encode(), federation=birth["federation"])
    assert isinstance(read, Birth)
    # What the client did not state is not assumed.
    stated = json.loads(encode_message(read))
    for name in LATER_FIELDS[knows:]:
        place, inner = field(stated, name)
        assert not place.get(inner), name


@pytest.mark.parametrize("knows", VERSIONS)
def test_a_client_of_today_reaches_every_earlier_server(knows: int, tmp_path: Path) -> None:
    births = Births(tmp_path)
    births.announcer.connected(LinkUp(1, None), 0.0)
    for _ in LATER_FIELDS:
        sent = json.loads(encode_message(births.made[-1]))
        unknown = [n for n in LATER_FIELDS[knows:] if field(sent, n)[1] in field(sent, n)[0]]
        if not unknown:
            break
        detail = f"malformed birth: birth.{unknown[-1]}: Extra inputs are not permitted"
        births.announcer.refused(
            Refusal(federation="home", device="pi", reason=Reason.MALFORMED, detail=detail)
        )
    last = json.loads(encode_message(births.made[-1]))
    assert not [name for name in LATER_FIELDS[knows:] if field(last, name)[1] in field(last, name)[0]]
    assert [name for name in ("labels", "prunes_first") if name in LATER_FIELDS[:knows]] == [
        name for name in ("labels", "prunes_first") if name in last
    ]


def test_a_message_of_another_protocol_is_refused_with_the_range() -> None:
    birth = whole_birth() | {"protocol": PROTOCOL_RANGE[1] + 1}
    with pytest.raises(
        PeerError, match=f"protocol 2 is not within {PROTOCOL_RANGE[0]}..{PROTOCOL_RANGE[1]}"
    ) as refused:
        decode_message(json.dumps(birth).encode(), federation=birth["federation"])
    assert refused.value.reason == "unsupported-protocol"


def test_the_guide_lists_every_later_field_and_the_versions_that_are_tested() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \|", GUIDE, re.M)
    assert rows == [*LATER_FIELDS]
    low, high = PROTOCOL_RANGE
    assert low == high
    assert f"Every client and server of protocol {high}" in GUIDE
    (before,) = re.findall(r"^UPGRADE_FROM \?= (\w+)", (ROOT / "Makefile").read_text(), re.M)
    assert f"commit `{before}`" in GUIDE
