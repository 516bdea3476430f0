"""Nouns agree with their counts."""

import pytest

from schemas.errors import format_count


@pytest.mark.parametrize(
    ("count", "thing", "text"),
    [(1, "example", "1 example"), (0, "row", "0 rows"), (2, "class", "2 classes"), (1, "class", "1 class")],
)
def test_a_noun_agrees_with_its_count(count: int, thing: str, text: str) -> None:
    assert format_count(count, thing) == text
