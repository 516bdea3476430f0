"""Parallel coordinates as inline SVG: one axis per setting, the last for the figure; one line per row."""

from collections.abc import Callable
from dataclasses import dataclass
from html import escape

from edge_server.observability.report.axes import Axis, value_axis
from edge_server.observability.report.charts import BOTTOM, DASHES, HEIGHT, LEFT, RIGHT, TOP, WIDTH, svg_text

HIGH, LOW = TOP + 18, HEIGHT - BOTTOM


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
    step = (WIDTH - LEFT - RIGHT) / len(chart.settings)
    across = [LEFT + step * index for index in range(len(chart.settings) + 1)]
    columns = [
        list(dict.fromkeys(line[0][index] for line in chart.lines)) for index in range(len(across) - 1)
    ]
    figure = value_axis([value for _, value in chart.lines], start=LOW, end=HIGH)
    parts = [
        _setting(x, name, values) for x, name, values in zip(across, chart.settings, columns, strict=False)
    ]
    parts.append(_frame(across[-1], chart.figure))
    parts += [
        svg_text(across[-1] + 8, figure.place(tick) + 4, chart.text(tick), anchor="start")
        for tick in figure.ticks
    ]
    parts += [_line(chart, index, across, columns, figure) for index in range(len(chart.lines))]
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="{chart.name}-title">'
        f'<title id="{chart.name}-title">{escape(chart.title)}</title>{"".join(parts)}</svg>'
    )


def _frame(x: float, name: str) -> str:
    title = svg_text(x, TOP, name, anchor="middle", kind="axis")
    return f'<path class="grid" d="M{x:.1f} {HIGH}V{LOW}"/>{title}'


def _setting(x: float, name: str, values: list[str]) -> str:
    ticks = (svg_text(x - 8, _height(values, value) + 4, value, anchor="end") for value in values)
    return _frame(x, name) + "".join(ticks)


def _height(values: list[str], value: str) -> float:
    return LOW - (LOW - HIGH) * (values.index(value) + 0.5) / len(values)


def _line(
    chart: ParallelAxes, index: int, across: list[float], columns: list[list[str]], figure: Axis
) -> str:
    values, result = chart.lines[index]
    heights = [*map(_height, columns, values), figure.place(result)]
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in zip(across, heights, strict=True))
    style = index % len(DASHES)
    dash = f' stroke-dasharray="{DASHES[style]}"' if DASHES[style] else ""
    spoken = f"{', '.join(values)}: {chart.text(result)}"
    return (
        f'<g class="series s{style}"><path class="line" d="M{path}"{dash}>'
        f"<title>{escape(spoken)}</title></path></g>"
    )
