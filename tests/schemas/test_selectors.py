"""Selectors choose devices by labels, and say what is wrong with a text that is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import ConfigError
from schemas.selectors import EVERY, Where, parse_label, parse_where, selectable

BARN = {"site": "barn", "role": "camera", "gpu": "yes"}


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("", True),
        ("site=barn", True),
        ("site==barn", True),
        ("site=field", False),
        ("site!=field", True),
        ("age!=old", True),
        ("site in (field, barn)", True),
        ("site notin (field,barn)", False),
        ("gpu", True),
        ("!gpu", False),
        ("!age", True),
        ("site=barn,role=camera", True),
        ("site in (barn,field), role!=camera", False),
    ],
)
def test_a_selector_chooses_by_labels(text: str, chosen: bool) -> None:
    assert parse_where(text).matches(BARN) is chosen


@pytest.mark.parametrize(
    "text", ["=barn", "site=", "site=barn,", "site barn", "!site=barn", "Site=barn", "site in barn", "a=b=c"]
)
def test_a_text_that_is_no_selector_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_where(text)


KEYS = st.from_regex(r"[a-z][a-z0-9-]{0,9}", fullmatch=True)
VALUES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,9}", fullmatch=True)
SIGNS = st.sampled_from(["=", "!="])
TERMS = st.one_of(
    st.builds(lambda key, sign, value: f"{key}{sign}{value}", KEYS, SIGNS, VALUES),
    st.builds(lambda key, values: f"{key} in ({','.join(values)})", KEYS, st.lists(VALUES, min_size=2)),
    KEYS,
    KEYS.map(lambda key: f"!{key}"),
)


@given(st.lists(TERMS, max_size=4), st.dictionaries(KEYS, VALUES))
def test_the_text_of_a_selector_means_the_same(terms: list[str], labels: dict[str, str]) -> None:
    where = parse_where(",".join(terms))
    assert parse_where(str(where)) == where
    assert where.matches(labels) == all(parse_where(term).matches(labels) for term in terms)


def test_two_selectors_together_choose_what_both_choose() -> None:
    both = parse_where("site=barn") & parse_where("role=scale")
    assert not both.matches(BARN)
    assert both.matches({**BARN, "role": "scale"})
    assert EVERY & both == both
    assert Where() == EVERY


def test_every_device_has_built_in_labels_and_a_label_replaces_the_site() -> None:
    assert parse_where("device=pi-1,site=north").matches(selectable({}, device="pi-1", site="north"))
    assert selectable({"site": "barn"}, device="pi-1", site="north")["site"] == "barn"
    assert selectable({"device": "x"}, device="pi-1")["device"] == "pi-1"


def test_a_label_is_a_key_and_a_value() -> None:
    assert parse_label("site=barn") == ("site", "barn")
    for text in ("site", "site=", "SITE=barn", "site=a b"):
        with pytest.raises(ConfigError):
            parse_label(text)
