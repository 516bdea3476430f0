"""Draws the guide's figure of recipes from the league's committed tables: `python -m tests.league_figure`.

For each recipe that ran in all settings, the whole model (filled) and the weakest tier's own model (open):
accuracy in percent, the mean over the settings of each one's mean over its seeds.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean

from tests.league_verdict import Rows, settings

FILE = Path(__file__).parents[1] / "deploy/docs/guides/compare/recipes.svg"
NOTES = {"fedavg": "the full model on every device", "smallest-for-all": "one small model for all"}
LEFT, TOP, STEP, SCALE, MIN_VALUE, MAX_VALUE = 285, 40, 24, 9, 30, 80
"""Pixels left of and above the drawing, between rows and per percentage point; the axis in percent."""


def means(found: Mapping[str, Rows]) -> dict[str, tuple[float | None, float]]:
    """Of each recipe the whole model's accuracy, or None, and tier 1's, in percent, the best tier 1 first."""
    complete = set.intersection(*(set(rows) for rows in found.values()))
    made = {}
    for row in complete:
        scores = [list(rows[row].values()) for rows in found.values()]
        wholes = [[score.whole for score in each if score.whole is not None] for each in scores]
        whole = 100 * fmean(map(fmean, wholes)) if all(wholes) else None
        made[row] = whole, 100 * fmean(fmean(score.tiers[0] for score in each) for each in scores)
    return dict(sorted(made.items(), key=lambda item: -item[1][1]))


def drawing(found: Mapping[str, Rows]) -> str:
    """The figure as SVG."""
    rows = means(found)
    height = TOP + STEP * len(rows) + 10
    marks = "\n".join((*_axis(height), *_rows(rows)))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_x(MAX_VALUE) + 40}" height="{height}" '
        f'font-family="sans-serif" font-size="13">\n<rect width="100%" height="100%" fill="white"/>\n'
        f"<title>Accuracy of the whole model and of tier 1's own, by recipe</title>\n{marks}\n</svg>\n"
    )


def _x(value: float) -> float:
    return round(LEFT + SCALE * (value - MIN_VALUE), 1)


def _axis(height: int) -> Iterator[str]:
    yield '<circle cx="12" cy="20" r="5" fill="#0072b2"/><text x="22" y="24">whole model</text>'
    yield '<circle cx="122" cy="20" r="5" fill="white" stroke="#d55e00" stroke-width="2"/>'
    yield '<text x="132" y="24">tier 1</text>'
    for value in range(MIN_VALUE, MAX_VALUE + 1, 10):
        yield f'<path d="M{_x(value)} {TOP - 8}V{height - 10}" stroke="#ddd"/>'
        yield f'<text x="{_x(value)}" y="{TOP - 14}" text-anchor="middle">{value} %</text>'


def _rows(rows: Mapping[str, tuple[float | None, float]]) -> Iterator[str]:
    for place, (name, (whole, tier)) in enumerate(rows.items()):
        y = TOP + STEP * place + 12
        label = f"{name} ({NOTES[name]})" if name in NOTES else name
        yield f'<text x="{LEFT - 12}" y="{y + 4}" text-anchor="end">{label}</text>'
        if whole is not None:
            yield f'<path d="M{_x(tier)} {y}H{_x(whole)}" stroke="#999" stroke-width="2"/>'
            yield f'<circle cx="{_x(whole)}" cy="{y}" r="5" fill="#0072b2"/>'
        yield f'<circle cx="{_x(tier)}" cy="{y}" r="5" fill="white" stroke="#d55e00" stroke-width="2"/>'


if __name__ == "__main__":
    FILE.write_text(drawing(settings()), encoding="utf-8")
