/** The rounds as rows: chosen, counted, dropped and refused devices, accuracy, bytes, time. */

import { arrange, el, mark, tableOf, write } from "./dom.js";
import { deviceRoute } from "./router.js";
import { bytesText, countText, durationText, lossText, percentText } from "./units.js";

const FIRST = 8;
const MOST_NAMED = 4;
const HEADS = ["Round", "Chosen", "Counted", "Dropped", "Refused", "Accuracy", "Loss", "Server sent", "Server received", "Time"];

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
  show(history) {
    this._history = history;
    mark(this.element, "hidden", history.length === 0);
    mark(this._more, "hidden", history.length <= FIRST);
    write(this._more, this._all ? "Show the latest only" : `Show all ${countText(history.length)} rounds`);
    const shown = (this._all ? history : history.slice(-FIRST)).toReversed();
    arrange(this._body, shown.map((line) => this._row(line)));
  }

  _toggle() {
    this._all = !this._all;
    this.show(this._history);
  }

  _row(line) {
    const known = this._lines.get(line.round);
    if (known?.of === line) return known.row;
    const row = makeRow(line);
    this._lines.set(line.round, { of: line, row });
    return row;
  }
}

function makeRow(line) {
  const count = (names) => countText(names?.length ?? 0);
  const cells = [
    count(line.selected), count(line.completed), named((line.dropped ?? []).map((device) => ({ device }))), named(line.rejected ?? []),
    percentText(line.test_accuracy), lossText(line.test_loss), bytesText(line.downlink_bytes), bytesText(line.uplink_bytes), durationText(line.duration_s),
  ];
  return el("tr", { role: "row" }, el("th", { scope: "row", role: "rowheader", class: "number", "data-head": HEADS[0], text: String(line.round) }),
    cells.map((cell, place) => {
      const head = HEADS[place + 1];
      return el("td", { role: "cell", class: head === "Refused" ? "number refusals" : "number", "data-head": head }, cell);
    }));
}

function named(devices) {
  if (!devices.length) return ["0"];
  const shown = devices.slice(0, MOST_NAMED).map(({ device, reason }) =>
    el("span", { class: "named" }, el("a", { href: deviceRoute(device), text: device }), reason ? ` ${reason}` : null));
  return devices.length > MOST_NAMED ? [...shown, `and ${countText(devices.length - MOST_NAMED)} more`] : shown;
}
