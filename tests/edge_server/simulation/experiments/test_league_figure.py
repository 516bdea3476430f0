"""The guide's figure of recipes, drawn again from the committed tables."""

from tests.league_figure import FILE, drawing
from tests.league_verdict import settings


def test_the_guides_figure_is_that_of_the_committed_tables() -> None:
    assert FILE.read_text(encoding="utf-8") == drawing(settings()), "run `python -m tests.league_figure`"
