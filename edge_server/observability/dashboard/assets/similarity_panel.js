/** Similarity of the clients' updates of a round: a heat map from -1 to 1, and a table. */

import { el, emptyState, mark, plainTable, write } from "./dom.js";
import { CellPicture, diverging, fillCell } from "./heatmap.js";
import { deviceRoute } from "./router.js";

const two = (value) => (Number.isFinite(value) ? value.toFixed(2) : "-");

/** The panel; an empty state without a measured similarity. */
export class SimilarityPanel {
  constructor() {
    this._readout = el("p", { class: "readout", text: "\u00a0" });
    this._facts = el("p", { class: "note" });
    this._picture = new CellPicture({
      readout: this._readout,
      paint: (context, box, row, column) => {
        const value = this._of.values[row][column];
        fillCell(context, box, diverging(value), two(value));
      },
      read: (row, column) => `${this._of.clients[row]} and ${this._of.clients[column]}: ${two(this._of.values[row][column])}`,
    });
    this._picture.element.classList.add("named-rows");
    this._table = el("details", { class: "numbers", on: { toggle: () => this._tabulate() } }, el("summary", { text: "As a table" }));
    this._body = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Similarity of clients" });
    this._table.append(this._body);
    this._none = emptyState("No similarity has been measured", "Strategies that weight updates by similarity, such as IGFL, measure it.");
    this._card = el("div", { class: "card" }, this._facts, this._picture.element, this._readout, scale(), this._table);
    this.element = el("section", { "aria-labelledby": "similarity-title" }, el("h3", { id: "similarity-title", text: "Similarity of clients" }), this._none, this._card);
  }

  /** Draw {round, clients [K], values [K, K]}, or the empty state. */
  show(similarity) {
    this._of = similarity;
    const there = Boolean(similarity?.clients.length);
    mark(this._none, "hidden", there);
    mark(this._card, "hidden", !there);
    if (!there) return;
    const { clients, round } = similarity;
    write(this._facts, `Cosine of their updates in round ${round}: 1 is the same direction, -1 the opposite. Columns have the same order as rows.`);
    const height = Math.max(8, Math.min(34, Math.floor(520 / clients.length)));
    this._picture.show({ rows: clients.length, columns: clients.length, height }, clients.map((name) => (height >= 14 ? name : "")),
      `Similarity of ${clients.length} clients in round ${round}; a table follows`);
    this._tabulate();
  }

  _tabulate() {
    if (!this._table.open || !this._of) return;
    const { clients, values, round } = this._of;
    const rows = values.map((row, place) => [el("a", { href: deviceRoute(clients[place]), text: clients[place] }), ...row.map(two)]);
    this._body.replaceChildren(plainTable(`Similarity in round ${round}`, ["Client", ...clients], rows));
  }
}

function scale() {
  const steps = [...Array(9).keys()].map((place) => {
    const box = el("span");
    box.style.background = `rgb(${diverging(place / 4 - 1).join(" ")})`;
    return box;
  });
  return el("p", { class: "scale", "aria-hidden": "true" }, "-1", el("span", { class: "steps" }, steps), "1");
}
