"""Encoding and decoding agree with the bytes of Eclipse Tahu that `record.py` recorded."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_server.observability.integrations.sparkplug.payload import (
    Datatype,
    Metric,
    Payload,
    decode_payload,
    encode_payload,
)
from edge_server.observability.integrations.sparkplug.service import asks_for_rebirth
from schemas.errors import PeerError
from tests.edge_server.observability.integrations.sparkplug.record import GOLDEN, NOW

BIRTH = Payload(
    NOW,
    (
        Metric("bdSeq", 7, Datatype.INT64),
        Metric("Node Control/Rebirth", False, Datatype.BOOLEAN),
        Metric("Run/Phase", "träge", Datatype.STRING),
        Metric("Run/Accuracy", None, Datatype.DOUBLE),
        Metric("Run/Round", 3, Datatype.UINT64),
        Metric("Offset", -5, Datatype.INT64),
    ),
    seq=0,
)
DATA = Payload(NOW + 1, (Metric("Run/Accuracy", 0.875),), seq=255)
DEATH = Payload(NOW, (Metric("bdSeq", 7, Datatype.INT64),))


@pytest.mark.parametrize(
    ("file", "payload", "kinds"),
    [
        ("birth", BIRTH, [metric.datatype for metric in BIRTH.metrics]),
        ("data", DATA, [Datatype.DOUBLE]),
        ("death", DEATH, [Datatype.INT64]),
    ],
)
def test_bytes_equal_those_of_tahu_in_both_directions(file, payload, kinds) -> None:
    recorded = (GOLDEN / f"{file}.bin").read_bytes()
    assert encode_payload(payload, kinds) == recorded
    assert decode_payload(recorded) == payload


def test_a_missing_number_differs_from_zero() -> None:
    assert decode_payload((GOLDEN / "death.bin").read_bytes()).seq is None
    assert decode_payload((GOLDEN / "birth.bin").read_bytes()).seq == 0


def test_a_rebirth_command_is_recognized() -> None:
    assert asks_for_rebirth((GOLDEN / "rebirth.bin").read_bytes())
    assert not asks_for_rebirth((GOLDEN / "birth.bin").read_bytes())
    other = Payload(NOW, (Metric("Node Control/Reboot", True, Datatype.BOOLEAN),))
    assert not asks_for_rebirth(encode_payload(other, [Datatype.BOOLEAN]))


@settings(max_examples=50)
@given(st.binary(max_size=200))
def test_junk_is_a_payload_or_refused(data) -> None:
    try:
        asks_for_rebirth(data)
    except PeerError:
        return


def test_a_payload_that_is_too_long_is_refused() -> None:
    with pytest.raises(PeerError, match="65537 bytes") as refused:
        decode_payload(bytes(65_537))
    assert refused.value.reason == "oversized"
