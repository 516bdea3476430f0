"""Line charts as inline SVG.

Series differ in dashes, markers and end labels as well as in colour, so that charts are readable in print and
with colour blindness. Colours come from the page's style sheet.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True)
class Axis:
    """Maps values from `low` to `high` to drawing units from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]

    def place(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def value_axis(
    values: Sequence[float],
    *,
    start: float,
    end: float,
    from_zero: bool = False,
    highest: float | None = None,
) -> Axis:
    """An axis that begins and ends at a tick; the margin around a flat line stays below `highest`."""
    if from_zero or not values:
        values = [*values, 0.0]
    low, high = min(values), max(values)
    if high <= low:
        # A flat line gets a narrow margin; a flat line at zero lies on the bottom.
        band = abs(low) * 0.1 or 1.0
        low, high = (low - band if low else low), high + band
    if highest is not None:
        high = min(high, highest)
    step = nice_step((high - low) / 5)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple(index * step for index in range(first, last + 1))
    return Axis(ticks[0], ticks[-1], start, end, ticks)


def count_axis(values: Sequence[float], *, start: float, end: float) -> Axis:
    """An axis of whole numbers from the first to the last."""
    low, high = min(values, default=1), max(values, default=1)
    step = max(1.0, nice_step((high - low) / 6)) if high > low else 1.0
    ticks = tuple(index * step for index in range(math.ceil(low / step), math.floor(high / step) + 1))
    margin = 0.5 if high <= low else 0.0
    return Axis(low - margin, high + margin, start, end, ticks)


def nice_step(rough: float) -> float:
    """The smallest step of 1, 2 or 5 times a power of ten that is at least `rough`."""
    power: float = 10.0 ** math.floor(math.log10(rough))
    return next((power * factor for factor in (1, 2, 5) if power * factor >= rough * (1 - 1e-9)), power * 10)


WIDTH, HEIGHT = 480, 300
LEFT, RIGHT, TOP, BOTTOM = 74, 96, 16, 48
LABEL_GAP = 15
MAX_MARKERS = 12
MAX_CHARACTERS = 11  # Of a name beside a chart: longer ones are cut off on a phone, or lie on the next chart
DASHES = ("", "7 3", "2 3", "9 3 2 3", "12 4", "4 2", "1 3", "9 2 2 2 2 2")
MARKERS = (
    "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z",
    "M-3-3h6v6h-6z",
    "M0-4.2l4 7.2h-8z",
    "M0-4.6l4.2 4.6l-4.2 4.6l-4.2-4.6z",
    "M0 4.2l4-7.2h-8z",
    "M-4-1h3v-3h2v3h3v2h-3v3h-2v-3h-3z",
    "M-4-2h8v4h-8z",
    "M-2-4h4v8h-4z",
)


@dataclass(frozen=True)
class Series:
    """A named curve of (round, value) points in order; None for a missing value."""

    label: str
    points: tuple[tuple[int, float | None], ...]

    @property
    def known_points(self) -> list[tuple[int, float]]:
        """The points that have a value."""
        return [(x, y) for x, y in self.points if y is not None]


@dataclass(frozen=True)
class Chart:
    """The data of a chart; `name` is its id in the page, `text` formats a value with its unit."""

    name: str
    title: str
    y_title: str
    series: tuple[Series, ...]
    text: Callable[[float], str]
    x_title: str = "round"
    from_zero: bool = False
    highest: float | None = None


def line_chart(chart: Chart) -> str:
    """The chart as an `<svg>` element; one without values says so.

    Names without room in it follow as a list.
    """
    shown = [series for series in chart.series if series.known_points]
    xs = [float(x) for series in chart.series for x, _ in series.points]
    ys = [y for series in shown for _, y in series.known_points]
    x_axis = count_axis(xs, start=LEFT + 8, end=WIDTH - RIGHT)
    bottom = HEIGHT - BOTTOM
    y_axis = value_axis(ys, start=bottom, end=TOP, from_zero=chart.from_zero, highest=chart.highest)
    drawn = [_curve(chart, index, series, x_axis, y_axis) for index, series in enumerate(shown)]
    # The first series is the most important one, so it is drawn last, over the others.
    beside = _has_room(shown)
    names = _labels(shown, x_axis, y_axis) if beside else ""
    entries = "".join(_legend_entry(chart, *numbered) for numbered in enumerate(shown))
    legend = "" if beside else f'<ul class="legend">{entries}</ul>'
    body = "".join(reversed(drawn)) + names
    if not shown:
        x, y = (LEFT + WIDTH - RIGHT) / 2, (TOP + HEIGHT - BOTTOM) / 2
        body = svg_text(x, y, "no values", anchor="middle", kind="axis")
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="{chart.name}-title">'
        f'<title id="{chart.name}-title">{escape(_spoken(chart, shown))}</title>'
        f"{_frame(chart, x_axis, y_axis)}{body}</svg>{legend}"
    )


def _has_room(shown: Sequence[Series]) -> bool:
    """Whether each name fits beside its curve's end."""
    longest = max((len(series.label) for series in shown), default=0)
    return longest <= MAX_CHARACTERS and len(shown) <= (HEIGHT - BOTTOM - TOP) // LABEL_GAP + 1


def _legend_entry(chart: Chart, index: int, series: Series) -> str:
    style = index % len(DASHES)
    line = f'<path class="line" d="M0 6H28"{dash_of(style)}/>{_mark(style, 14, 6)}'
    text = escape(f"{series.label}: {chart.text(series.known_points[-1][1])}")
    drawn = f'<svg viewBox="0 0 28 12" aria-hidden="true">{line}</svg>'
    return f'<li class="s{style}">{drawn}<span>{text}</span></li>'


def dash_of(style: int) -> str:
    return f' stroke-dasharray="{DASHES[style]}"' if DASHES[style] else ""


def _spoken(chart: Chart, shown: Sequence[Series]) -> str:
    if not shown:
        return f"{chart.title}: no values"
    ends = (f"{series.label} ends at {chart.text(series.known_points[-1][1])}" for series in shown)
    return f"{chart.title}: {', '.join(ends)}"


def _frame(chart: Chart, x_axis: Axis, y_axis: Axis) -> str:
    parts = []
    for tick in y_axis.ticks:
        y = y_axis.place(tick)
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT + 8}"/>')
        parts.append(svg_text(LEFT - 8, y + 4, tick_text(chart.text(tick)), anchor="end"))
    for tick in x_axis.ticks:
        parts.append(svg_text(x_axis.place(tick), HEIGHT - BOTTOM + 18, f"{tick:.0f}", anchor="middle"))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(
        svg_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, chart.x_title, anchor="middle", kind="axis")
    )
    turned = f' transform="rotate(-90 13 {middle:.1f})"'
    parts.append(svg_text(13, middle, chart.y_title, anchor="middle", kind="axis", extra=turned))
    return "".join(parts)


def tick_text(text: str) -> str:
    """A value at an axis: percent without decimals, where those are zeros."""
    return text.replace(".00%", "%")


def svg_text(x: float, y: float, text: str, *, anchor: str, kind: str = "tick", extra: str = "") -> str:
    """One text element; `anchor` is start, middle or end."""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text class="{kind}" {place}{extra}>{escape(text)}</text>'


def _curve(chart: Chart, index: int, series: Series, x_axis: Axis, y_axis: Axis) -> str:
    """One series: its line, thin across missing values, and its markers with their values as titles."""
    style = index % len(DASHES)
    line, bridges = _strokes(series, x_axis, y_axis)
    marks = "".join(
        _mark(
            style, x_axis.place(x), y_axis.place(y), f"{series.label}, {chart.x_title} {x}: {chart.text(y)}"
        )
        for x, y in _points_to_mark(series)
    )
    thin = f'<path class="bridge" d="{bridges}"/>' if bridges else ""
    return f'<g class="series s{style}">{thin}<path class="line" d="{line}"{dash_of(style)}/>{marks}</g>'


def _strokes(series: Series, x_axis: Axis, y_axis: Axis) -> tuple[str, str]:
    """The paths of the line and of the bridges across its gaps."""
    line, bridges, last, missing = "", "", "", False
    for x, y in series.points:
        if y is None:
            missing = True
            continue
        point = f"{x_axis.place(x):.1f} {y_axis.place(y):.1f}"
        line += f"{'L' if last and not missing else 'M'}{point}"
        bridges += f"M{last}L{point}" if last and missing else ""
        last, missing = point, False
    return line, bridges


def _mark(style: int, x: float, y: float, spoken: str = "") -> str:
    title = f"<title>{escape(spoken)}</title>" if spoken else ""
    return f'<path class="mark" d="{MARKERS[style]}" transform="translate({x:.1f} {y:.1f})">{title}</path>'


def _points_to_mark(series: Series) -> list[tuple[int, float]]:
    """The points with a marker: evenly spaced ones, the last one, and isolated ones."""
    known = series.known_points
    spacing = -(-len(known) // MAX_MARKERS)
    kept = {x for x, _ in known[::-spacing]} if known else set()
    values = [None, *(y for _, y in series.points), None]
    for before, (x, _), after in zip(values, series.points, values[2:], strict=False):
        if before is None and after is None:
            kept.add(x)
    return [point for point in known if point[0] in kept]


def _labels(shown: Sequence[Series], x_axis: Axis, y_axis: Axis) -> str:
    """Each series' name next to its last point, moved apart where names would overlap."""
    ends = [
        (x_axis.place(series.known_points[-1][0]), y_axis.place(series.known_points[-1][1]))
        for series in shown
    ]
    heights = separate_labels([y for _, y in ends], gap=LABEL_GAP, low=TOP, high=HEIGHT - BOTTOM)
    parts = []
    for index, (series, (x, y), height) in enumerate(zip(shown, ends, heights, strict=True)):
        style = index % len(DASHES)
        left = WIDTH - RIGHT + 20
        parts.append(
            f'<g class="series s{style}">'
            f'<path class="lead" d="M{x + 5:.1f} {y:.1f}L{left - 7} {height:.1f}"/>'
            f"{_mark(style, left, height)}"
            f"{svg_text(left + 9, height + 4, series.label, anchor='start', kind='label')}</g>"
        )
    return "".join(parts)


def separate_labels(wanted: Sequence[float], *, gap: float, low: float, high: float) -> list[float]:
    """Move positions at least `gap` apart, within `low` to `high` if there is room; order is kept."""
    order = sorted(range(len(wanted)), key=lambda index: (wanted[index], index))
    placed = [0.0] * len(wanted)
    floor = low
    for index in order:
        placed[index] = max(wanted[index], floor)
        floor = placed[index] + gap
    ceiling = max(high, low + gap * (len(wanted) - 1))
    for index in reversed(order):
        placed[index] = min(placed[index], ceiling)
        ceiling = placed[index] - gap
    return placed
