"""Decoding any bytes returns a message of this protocol or raises a `PeerError` with a reason."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from schemas.errors import PeerError, Reason
from schemas.messages import MAX_MESSAGE_BYTES, MESSAGES, Message, Refusal, decode_message, encode_message
from tests.schemas.examples import FEDERATION, MESSAGES_BY_KIND

DEATH = {"kind": "death", "protocol": 1, "federation": FEDERATION, "device": "pi-3", "session": 1}


def changed(**fields: object) -> bytes:
    """The bytes of a valid message with some fields replaced, or omitted if None."""
    return json.dumps({k: v for k, v in {**DEATH, **fields}.items() if v is not None}).encode()


BAD = {
    "empty": (b"", Reason.MALFORMED),
    "not JSON": (b"{'kind': 'death'}", Reason.MALFORMED),
    "an array": (b"[1, 2]", Reason.MALFORMED),
    "a number": (b"17", Reason.MALFORMED),
    "invalid UTF-8": (b'{"kind": "death", "device": "\xff\xfe"}', Reason.MALFORMED),
    "UTF-16": (changed().decode().encode("utf-16"), Reason.MALFORMED),
    "lone surrogate": (changed().replace(b"pi-3", b"\\ud800"), Reason.MALFORMED),
    "deep nesting": (b"[" * 60_000, Reason.MALFORMED),
    "deep nesting in a field": (b'{"kind":' + b'{"a":' * 10_000 + b"1" + b"}" * 10_001, Reason.MALFORMED),
    "a number of 5000 digits": (b'{"kind": "death", "session": ' + b"9" * 5000 + b"}", Reason.MALFORMED),
    "no kind": (changed(kind=None), Reason.UNKNOWN_KIND),
    "unknown kind": (changed(kind="gossip"), Reason.UNKNOWN_KIND),
    "a kind that is not a string": (changed(kind=["death"]), Reason.UNKNOWN_KIND),
    "oversized for any kind": (changed(device="x" * MAX_MESSAGE_BYTES), Reason.OVERSIZED),
    "oversized for its kind": (changed(device="x" * 4096), Reason.OVERSIZED),
    "padded beyond the limit": (changed() + b" " * 4096, Reason.OVERSIZED),
    "a later protocol": (changed(protocol=2), Reason.UNSUPPORTED_PROTOCOL),
    "an earlier protocol": (changed(protocol=0), Reason.UNSUPPORTED_PROTOCOL),
    "a protocol that is not a number": (changed(protocol="1"), Reason.UNSUPPORTED_PROTOCOL),
    "unknown field": (changed(mood="good"), Reason.MALFORMED),
    "missing field": (changed(session=None), Reason.MALFORMED),
    "wrong type": (changed(session="soon"), Reason.MALFORMED),
    "negative session": (changed(session=-1), Reason.MALFORMED),
    "a name with a slash": (changed(device="a/b"), Reason.MALFORMED),
    "a name with a newline": (changed(device="a\n"), Reason.MALFORMED),
    "a name that is a topic wildcard": (changed(device="+"), Reason.MALFORMED),
    "NaN": (
        encode_message(MESSAGES_BY_KIND["telemetry"]).replace(b'"loss":0.75', b'"loss":NaN'),
        Reason.MALFORMED,
    ),
    "infinity": (
        encode_message(MESSAGES_BY_KIND["telemetry"]).replace(b'"loss":0.75', b'"loss":1e999'),
        Reason.MALFORMED,
    ),
    "NaN in an option": (
        encode_message(MESSAGES_BY_KIND["task"]).replace(b'"mu":0.1', b'"mu":NaN'),
        Reason.MALFORMED,
    ),
    "wrong federation": (changed(federation="work"), Reason.WRONG_FEDERATION),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_with_its_reason(case):
    payload, reason = BAD[case]
    with pytest.raises(PeerError) as refused:
        decode_message(payload, federation=FEDERATION)
    assert refused.value.reason == reason, str(refused.value)


@pytest.mark.parametrize("case", BAD)
def test_a_refusal_of_bad_input_can_be_sent(case):
    payload, _ = BAD[case]
    with pytest.raises(PeerError) as refused:
        decode_message(payload, federation=FEDERATION)
    reason, detail = Reason(refused.value.reason), str(refused.value)[:500]
    refusal = Refusal(federation=FEDERATION, device="pi-3", reason=reason, detail=detail)
    assert decode_message(encode_message(refusal)) == refusal


@pytest.mark.parametrize("kind", MESSAGES)
def test_every_message_survives_a_round_trip(kind):
    message = MESSAGES_BY_KIND[kind]
    assert decode_message(encode_message(message), federation=FEDERATION) == message


def test_any_federation_is_accepted_if_none_is_given():
    assert decode_message(changed(federation="work")).federation == "work"


def test_a_message_without_a_protocol_has_protocol_1():
    assert decode_message(changed(protocol=None)).protocol == 1


@pytest.mark.parametrize("attempt", [0, -1, "soon", None])
@pytest.mark.parametrize("kind", ["task", "task-reply", "update", "delivery", "acknowledgement"])
def test_a_message_of_a_task_requires_an_attempt(kind, attempt):
    fields = json.loads(encode_message(MESSAGES_BY_KIND[kind]))
    with pytest.raises(PeerError, match="attempt"):
        decode_message(json.dumps({**fields, "attempt": attempt}).encode())


@pytest.mark.parametrize("kind", ["acknowledgement", "refusal"])
def test_an_answer_names_its_task_by_attempt_and_not_by_round(kind):
    fields = json.loads(encode_message(MESSAGES_BY_KIND[kind]))
    with pytest.raises(PeerError, match="round"):
        decode_message(json.dumps({**fields, "round": 3}).encode())


def test_a_refusal_may_name_only_a_blob_or_no_task_at_all():
    common = {"federation": FEDERATION, "device": "pi-3"}
    for more in ({"reason": Reason.UNKNOWN_BLOB, "digest": "0" * 64}, {"reason": Reason.MALFORMED}):
        refusal = Refusal(**common, **more)
        assert decode_message(encode_message(refusal)) == refusal


def test_messages_are_immutable():
    with pytest.raises(ValidationError):
        MESSAGES_BY_KIND["death"].session = 2


def test_a_message_that_is_too_large_is_not_sent():
    birth = MESSAGES_BY_KIND["birth"]
    software = {f"package-{index}": "1" * 500 for index in range(10)}
    large = birth.model_copy(update={"profile": birth.profile.model_copy(update={"software": software})})
    with pytest.raises(PeerError, match="exceeds 4096") as refused:
        encode_message(large)
    assert refused.value.reason == Reason.OVERSIZED


def assert_decoded_or_refused(payload: bytes) -> None:
    reason = None
    try:
        assert isinstance(decode_message(payload, federation=FEDERATION), Message)
    except PeerError as error:
        reason = error.reason
    assert reason is None or reason in set(Reason)


@given(st.binary(max_size=300))
def test_any_bytes_are_decoded_as_a_message_or_refused(payload):
    assert_decoded_or_refused(payload)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(kind=st.sampled_from(sorted(MESSAGES)), field=st.integers(0, 40), value=JSON)
def test_a_message_with_any_field_value_is_decoded_or_refused(kind, field, value):
    fields = json.loads(encode_message(MESSAGES_BY_KIND[kind]))
    name = sorted(fields)[field % len(fields)]
    assert_decoded_or_refused(json.dumps({**fields, name: value}).encode())


@given(
    kind=st.sampled_from(sorted(MESSAGES)),
    places=st.lists(st.integers(0, 4000), min_size=1, max_size=4),
    byte=st.integers(0, 255),
)
def test_a_damaged_message_is_decoded_or_refused(kind, places, byte):
    payload = bytearray(encode_message(MESSAGES_BY_KIND[kind]))
    for place in places:
        payload[place % len(payload)] = byte
    assert_decoded_or_refused(bytes(payload))
