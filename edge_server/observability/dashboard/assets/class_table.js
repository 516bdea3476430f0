/** The share of each class's examples that is recognised: on the test data, on all devices, on each. */

import { inkOn, sequential } from "./heatmap.js";
import { el, mark, tableOf, write } from "./dom.js";
import { countText, percentText } from "./units.js";

/** A row per class, a column per set of examples; the colour is the share. */
export class ClassTable {
  constructor() {
    this._note = el("p", { class: "note" });
    this._table = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "By class" });
    this.element = el("section", { "aria-labelledby": "classes-title", hidden: true },
      el("h3", { id: "classes-title", text: "By class" }), this._note, this._table);
    this._made = "";
  }

  /** Draw the run's newest counts if they changed. */
  show({ by_class: found }) {
    mark(this.element, "hidden", !found);
    const made = JSON.stringify(found ?? null);
    if (!found || made === this._made) return;
    this._made = made;
    write(this._note, `Share of a class's ${found.things} that is recognised after round ${found.round}, and of how many, with its 95 % interval`);
    const heads = ["Class", ...found.columns];
    const body = el("tbody", { role: "rowgroup" }, found.rows.map((row) => rowOf(row, heads)));
    this._table.replaceChildren(tableOf("Recall by class", heads, heads.map((_, place) => (place ? "number" : null)), body));
  }
}

function rowOf({ name, cells }, heads) {
  return el("tr", { role: "row" }, el("th", { scope: "row", role: "rowheader", "data-head": heads[0], text: name }),
    cells.map((figure, place) => cellOf(figure, heads[place + 1])));
}

function cellOf(figure, head) {
  const known = figure && figure.recall !== null;
  const cell = el("td", { role: "cell", class: "number", "data-head": head }, known ? shareOf(figure) : "-");
  if (known) cell.append(el("span", { class: "note", text: ` of ${countText(figure.examples)}, ${figure.interval.map(percentText).join(" - ")}` }));
  return cell;
}

function shareOf({ recall }) {
  const share = el("span", { class: "share", text: percentText(recall) });
  const colour = sequential(recall);
  share.style.background = `rgb(${colour.join(" ")})`;
  share.style.color = inkOn(colour);
  return share;
}
