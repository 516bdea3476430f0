"""What a birth says that its device can do."""

import re
from pathlib import Path

import pytest

from schemas.capabilities import ALL, OF_OWN_FIELDS, Capability, birth_fields
from schemas.messages import Birth, decode_message, encode_message
from schemas.values import DataCard

CARD = DataCard(source="digits", examples=1, input_shape=(1, 8, 8), num_classes=10)


def birth(**fields: object) -> Birth:
    made = Birth(federation="home", device="pi", session=1, data=CARD, **fields)  # type: ignore[arg-type]
    decoded = decode_message(encode_message(made))
    assert isinstance(decoded, Birth)
    return decoded


@pytest.mark.parametrize("can", [ALL, *(frozenset({each}) for each in Capability), frozenset()])
def test_each_capability_arrives(can: frozenset[Capability]) -> None:
    assert birth(**birth_fields(can)).capabilities == can


def test_words_of_later_versions_mean_nothing() -> None:
    assert birth(can=("flies", "warms_up")).capabilities == {Capability.WARMS_UP}


def test_a_capability_with_a_field_of_its_own_is_no_word() -> None:
    assert "can" not in birth(**birth_fields(OF_OWN_FIELDS)).model_dump()


def test_only_the_birth_knows_which_capabilities_have_a_field_of_their_own() -> None:
    asked = re.compile(rf"\.({'|'.join(OF_OWN_FIELDS)})\b")
    root = Path(__file__).parents[2]
    sources = [path for name in ("edge_client", "edge_server") for path in (root / name).rglob("*.py")]
    assert sources
    assert not [path for path in sources if asked.search(path.read_text(encoding="utf-8"))]
