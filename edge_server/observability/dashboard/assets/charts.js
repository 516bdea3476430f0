/** Curves over rounds or time: a uPlot chart with a legend that reads values out, and the same numbers as a table. */

import uPlot from "./vendor/uPlot.esm.js";
import { el, mark, plainTable, write } from "./dom.js";
import { markOf, swatch, tracePoint } from "./marks.js";
import { colour, onTheme } from "./theme.js";
import { minuteText, momentText, UNKNOWN } from "./units.js";

const HEIGHT = 220;
const MAX_POINTS = 40;
const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';

const ROUNDS = { head: "Round", by: "by round", at: (round) => `in round ${round}`, text: String, range: roundEnds, axis: { incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000] } };

/** Along times in seconds since 1970. */
export const TIMES = { head: "Time", by: "over time", at: (time) => `at ${momentText(time)}`, text: momentText, range: timeEnds, axis: { values: (_, times) => times.map(minuteText) } };

/** Curves of one measure. `format` writes a value, `tick` one at the axis, `bounds(min, max)` the ends of its axis, which `down` puts upside down. */
export class RoundChart {
  constructor({ title, note = "", format, tick = format, bounds = fromZero, bars = false, down = false, along = ROUNDS, empty = "Not measured yet." }) {
    Object.assign(this, { title, format, tick, bounds, bars, down, along });
    this._hidden = new Set();
    this._plot = null;
    this._series = [];
    this._data = [[]];
    this._stage = el("div", { class: "plot", role: "img" });
    this._legend = el("ul", { class: "legend", "aria-label": `Curves of ${title}` });
    this._empty = el("p", { class: "empty small", text: empty });
    this._table = el("details", { class: "numbers", on: { toggle: () => this._tabulate() } },
      el("summary", { text: "As a table" }));
    this._body = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `${title} ${along.by}` });
    this._table.append(this._body);
    this._head = el("h3", { text: title });
    this.element = el("figure", { class: "chart" },
      el("figcaption", {}, this._head, note ? el("p", { class: "note", text: note }) : null),
      this._legend, this._stage, this._empty, this._table);
    new ResizeObserver(() => this._resize()).observe(this._stage);
    onTheme(() => this._build());
  }

  /** Show another measure: its title, formats and bounds as in the constructor. */
  measure(measure) {
    if (measure.title === this.title) return;
    Object.assign(this, measure);
    write(this._head, this.title);
    mark(this._legend, "aria-label", `Curves of ${this.title}`);
    mark(this._body, "aria-label", `${this.title} ${this.along.by}`);
    this._series = [];
  }

  /** Show series [{key, label, style}] of values {key: [R]} over rounds [R]; null is a gap. */
  show(rounds, series, values) {
    const given = series.filter(({ key }) => values[key].some((value) => value !== null && value !== undefined));
    const none = given.length === 0;
    mark(this._stage, "hidden", none);
    mark(this._table, "hidden", none);
    mark(this._legend, "hidden", none);
    mark(this._empty, "hidden", !none);
    const signature = JSON.stringify(given);
    const same = signature === JSON.stringify(this._series);
    this._series = given;
    this._data = [rounds, ...given.map(({ key }) => values[key].map((value) => value ?? null))];
    if (none) return;
    if (same && this._plot) this._plot.setData(this._data);
    else this._build();
    this._read(null);
    this._tabulate();
    mark(this._stage, "aria-label", this.summary());
  }

  /** What the chart says, in a sentence for those who do not see it. */
  summary() {
    const rounds = this._data[0];
    const said = this._series.map(({ label }, place) => {
      const known = this._data[place + 1].map((value, at) => [value, at]).filter(([value]) => value !== null);
      if (!known.length) return `${label}: not known`;
      const [first, last] = [known[0], known.at(-1)];
      const now = `${label} ${this.format(last[0])} ${this.along.at(rounds[last[1]])}`;
      return first === last ? now : `${now}, ${this.format(first[0])} ${this.along.at(rounds[first[1]])}`;
    });
    return `${this.title} ${this.along.by}. ${said.join("; ")}.`;
  }

  _build() {
    this._plot?.destroy();
    this._plot = null;
    if (!this._series.length) return;
    this._legend.replaceChildren(...this._series.map((one) => this._entry(one)));
    const width = this._stage.clientWidth;
    if (width) this._plot = new uPlot(this._options(width), this._data, this._stage);
    this._read(null);
  }

  _resize() {
    const width = this._stage.clientWidth;
    if (!width || !this._series.length) return;
    if (this._plot) this._plot.setSize({ width, height: HEIGHT });
    else this._build();
  }

  _options(width) {
    const [soft, rule] = [colour("--soft"), colour("--rule")];
    const axis = { stroke: soft, font: FONT, grid: { stroke: rule, width: 1 }, ticks: { show: false } };
    return {
      width,
      height: HEIGHT,
      legend: { show: false },
      padding: [10, 12, 0, 0],
      cursor: { sync: { key: this.along.head }, drag: { x: false, y: false }, points: { show: !this.bars } },
      scales: { x: { time: this.along === TIMES, range: this.along.range }, y: { range: (_, min, max) => this.bounds(min, max), dir: this.down ? -1 : 1 } },
      axes: [
        { ...axis, size: 28, grid: { show: false }, ...this.along.axis },
        { ...axis, size: (_, texts) => axisSize(texts), values: (_, ticks) => ticks.map((value) => this.tick(value)) },
      ],
      series: [{}, ...this._series.map((one) => this._line(one))],
      hooks: { setCursor: [(plot) => this._read(plot.cursor.idx)] },
    };
  }

  _line({ key, style }) {
    const { token, dash, shape } = markOf(style);
    const stroke = colour(token);
    const line = { stroke, width: style === 0 ? 2.25 : 1.75, show: !this._hidden.has(key), spanGaps: true };
    if (this.bars) return { ...line, fill: stroke, width: 0, paths: uPlot.paths.bars({ size: [0.6, 40] }), points: { show: false } };
    return { ...line, dash, points: { show: true, filter: fewPoints, paths: pointPaths(shape), fill: stroke, width: 0, size: 7 } };
  }

  _entry({ key, label, style }) {
    const value = el("span", { class: "value" });
    const button = el("button", { type: "button", class: "entry", "aria-pressed": String(!this._hidden.has(key)) },
      swatch(style), el("span", { text: label }), value);
    button.addEventListener("click", () => this._toggle(key, button));
    return el("li", {}, button);
  }

  _toggle(key, button) {
    const shown = this._hidden.delete(key) || !this._hidden.add(key);
    button.setAttribute("aria-pressed", String(shown));
    const place = this._series.findIndex((one) => one.key === key);
    this._plot?.setSeries(place + 1, { show: shown });
  }

  /** Write each curve's value at the place of the cursor, or its last one. */
  _read(at) {
    [...this._legend.querySelectorAll(".value")].forEach((value, place) => {
      const column = this._data[place + 1] ?? [];
      const last = column.findLast((one) => one !== null) ?? null;
      const shown = at === null || at === undefined ? last : column[at];
      write(value, shown === null || shown === undefined ? UNKNOWN : this.format(shown));
    });
  }

  _tabulate() {
    if (!this._table.open) return;
    const heads = [this.along.head, ...this._series.map(({ label }) => label)];
    const rows = this._data[0].map((round, at) => [
      this.along.text(round), ...this._series.map((_, place) => this._cell(this._data[place + 1][at])),
    ]);
    this._body.replaceChildren(plainTable(`${this.title} ${this.along.by}`, heads, rows.reverse()));
  }

  _cell(value) {
    return value === null ? UNKNOWN : this.format(value);
  }
}

/** An axis of shares of one: always all of it, so that heights can be compared between runs. */
export const shareBounds = () => [0, 1];

/** An axis from zero, with a little air above. */
export function fromZero(min, max) {
  return [0, max > 0 ? max * 1.08 : 1];
}

function roundEnds(plot, min, max) {
  // A single round stands in the middle, and bars are not cut in half.
  return min === null ? [0, 1] : [min - (min === max ? 1 : 0.5), max + (min === max ? 1 : 0.5)];
}

function timeEnds(plot, min, max) {
  if (min === null) return [0, 1];
  // After a single time uPlot adds a thousand days, whose ticks are midnights.
  const [first, last] = plot.data[0].length === 1 ? [min, min] : [min, max];
  return first === last ? [first - 1800, last + 1800] : [first, last];
}

function axisSize(texts) {
  const longest = Math.max(0, ...(texts ?? []).map((text) => text.length));
  return 18 + longest * 6.6;
}

function fewPoints(plot, series, show) {
  const count = plot.data[0].length;
  const step = Math.ceil(count / MAX_POINTS);
  return show === false ? null : plot.data[0].map((_, at) => at).filter((at) => at % step === 0 || at === count - 1);
}

function pointPaths(shape) {
  return (plot, place, from, to, filtered) => {
    const path = new Path2D();
    const [xs, ys] = [plot.data[0], plot.data[place]];
    for (const at of filtered ?? xs.keys()) {
      if (ys[at] === null || ys[at] === undefined) continue;
      tracePoint(path, shape, plot.valToPos(xs[at], "x", true), plot.valToPos(ys[at], "y", true), 3.5 * devicePixelRatio);
    }
    return { fill: path, stroke: null, flags: 3 };
  };
}
