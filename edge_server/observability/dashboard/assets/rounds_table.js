/** The rounds as rows: chosen, counted, dropped and refused devices, the leading figure, bytes, time. */

import { arrange, el, mark, tableOf, write } from "./dom.js";
import { deviceRoute } from "./router.js";
import { figureText, measureOf, testedOf } from "./figures.js";
import { bytesText, countText, durationText, lossText } from "./units.js";

const FIRST = 8;
const MAX_NAMED = 4;
const FIGURE = "Accuracy";
const HEADS = ["Round", "Chosen", "Counted", "Dropped", "Refused", FIGURE, "Loss", "Server sent", "Server received", "Time"];

/** The last rounds, or all of them on request. */
export class RoundsTable {
  constructor() {
    this._all = false;
    this._lines = new Map();
    this._body = el("tbody", { role: "rowgroup" });
    this._more = el("button", { type: "button", class: "quiet", on: { click: () => this._toggle() } });
    this.element = el("section", { "aria-labelledby": "rounds-title", hidden: true }, el("h3", { id: "rounds-title", text: "Rounds" }),
      el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Rounds" },
        tableOf("Rounds, the latest first", HEADS, HEADS.map(() => "number"), this._body)), this._more);
  }

  /** Show the rounds, the latest first. */
  show(history, metric) {
    [this._history, this._metric] = [history, metric];
    const title = measureOf(metric).title;
    write(this.element.querySelectorAll("thead th")[HEADS.indexOf(FIGURE)], title);
    mark(this.element, "hidden", history.length === 0);
    mark(this._more, "hidden", history.length <= FIRST);
    write(this._more, this._all ? "Show the latest only" : `Show all ${countText(history.length)} rounds`);
    const shown = (this._all ? history : history.slice(-FIRST)).toReversed();
    arrange(this._body, shown.map((line) => this._row(line)));
  }

  _toggle() {
    this._all = !this._all;
    this.show(this._history, this._metric);
  }

  _row(line) {
    const known = this._lines.get(line.round);
    if (known?.of === line) return known.row;
    const row = makeRow(line, this._metric);
    this._lines.set(line.round, { of: line, row });
    return row;
  }
}

function makeRow(line, metric) {
  const count = (names) => countText(names?.length ?? 0);
  const cells = [
    count(line.selected), count(line.completed), named((line.dropped ?? []).map((device) => ({ device }))), named(line.rejected ?? []),
    figureText(metric, testedOf(metric, line)), lossText(line.test_loss), bytesText(line.downlink_bytes), bytesText(line.uplink_bytes), durationText(line.duration_s),
  ];
  return el("tr", { role: "row" }, el("th", { scope: "row", role: "rowheader", class: "number", "data-head": HEADS[0], text: String(line.round) }),
    cells.map((cell, place) => {
      const head = HEADS[place + 1];
      return el("td", { role: "cell", class: head === "Refused" ? "number refusals" : "number", "data-head": head === FIGURE ? measureOf(metric).title : head }, cell);
    }));
}

function named(devices) {
  if (!devices.length) return ["0"];
  const shown = devices.slice(0, MAX_NAMED).map(({ device, reason }) =>
    el("span", { class: "named" }, el("a", { href: deviceRoute(device), text: device }), reason ? ` ${reason}` : null));
  return devices.length > MAX_NAMED ? [...shown, `and ${countText(devices.length - MAX_NAMED)} more`] : shown;
}
