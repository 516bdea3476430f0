"""Parallel coordinates as inline SVG: one axis per setting, the last for the figure; one line per row."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate

from edge_server.observability.report import charts

HIGH, LOW = charts.TOP + 32, charts.HEIGHT - 16
CHARACTER = 8.5  # Widest mean width of a character, on a phone


@dataclass(frozen=True)
class ParallelAxes:
    """Lines of (values of the `settings` as texts, figure); `name` is the chart's id in the page."""

    name: str
    title: str
    settings: tuple[str, ...]
    figure: str
    lines: tuple[tuple[tuple[str, ...], float], ...]
    text: Callable[[float], str]


def parallel_axes(chart: ParallelAxes) -> str:
    """The chart as one `<svg>` element; values of a setting stand evenly, in their order."""
    columns = [
        list(dict.fromkeys(line[0][index] for line in chart.lines)) for index in range(len(chart.settings))
    ]
    titles = (*chart.settings, chart.figure)
    across = list(accumulate(_distances(titles, columns)))
    figure = charts.value_axis([value for _, value in chart.lines], start=LOW, end=HIGH)
    parts = [_line(chart, index, across, columns, figure) for index in range(len(chart.lines))]
    parts += [_frame(x, index, title) for index, (x, title) in enumerate(zip(across, titles, strict=True))]
    parts += [_values(x, values) for x, values in zip(across, columns, strict=False)]
    parts += [
        charts.svg_text(
            across[-1] + 8, figure.place(tick) + 4, charts.tick_text(chart.text(tick)), anchor="start"
        )
        for tick in figure.ticks
    ]
    width = across[-1] + charts.RIGHT
    widest = f"max-width: {width * 36 / charts.WIDTH:.1f}rem"
    return (
        f'<svg class="parallel" viewBox="0 0 {width:.1f} {charts.HEIGHT}" style="{widest}" '
        f'role="img" aria-labelledby="{chart.name}-title">'
        f'<title id="{chart.name}-title">{escape(chart.title)}</title>{"".join(parts)}</svg>'
    )


def _distances(titles: Sequence[str], columns: Sequence[Sequence[str]]) -> Iterator[float]:
    """The width left of each axis: its values have room, and titles at every second axis."""
    even = (charts.WIDTH - charts.LEFT - charts.RIGHT) / len(columns)
    for index, title in enumerate(titles):
        values = columns[index] if index < len(columns) else ()
        before = titles[index - 2] if index > 1 else ""
        room = max(map(len, values), default=0) * CHARACTER + 16
        yield max(room, charts.LEFT if index == 0 else even, CHARACTER * (len(title) + len(before) + 2) / 4)


def _frame(x: float, index: int, name: str) -> str:
    """An axis and its title, by turns in two rows."""
    title = charts.svg_text(x, charts.TOP + 14 * (index % 2), name, anchor="middle", kind="axis")
    return f'<path class="grid" d="M{x:.1f} {HIGH}V{LOW}"/>{title}'


def _values(x: float, values: list[str]) -> str:
    return "".join(
        charts.svg_text(x - 8, _height(values, value) + 4, value, anchor="end") for value in values
    )


def _height(values: list[str], value: str) -> float:
    return LOW - (LOW - HIGH) * (values.index(value) + 0.5) / len(values)


def _line(
    chart: ParallelAxes, index: int, across: list[float], columns: list[list[str]], figure: charts.Axis
) -> str:
    values, result = chart.lines[index]
    heights = [*map(_height, columns, values), figure.place(result)]
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in zip(across, heights, strict=True))
    style = index % len(charts.DASHES)
    spoken = f"{', '.join(values)}: {chart.text(result)}"
    return (
        f'<g class="series s{style}"><path class="line" d="M{path}"{charts.dash_of(style)}>'
        f"<title>{escape(spoken)}</title></path></g>"
    )
