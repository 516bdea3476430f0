/** A table whose rows are made again only where they have changed, so that focus and clicks are not lost. */

import { arrange, el, mark, tableOf } from "../dom.js";

/** Columns are {head, cell(row), kind}; `id(row)` names a row. On a phone a row is a card. */
export class Listing {
  constructor({ caption, columns, id }) {
    Object.assign(this, { _columns: columns, _id: id, _held: new Map() });
    this._body = el("tbody", { role: "rowgroup" });
    this.element = el("div", { class: "scroll listing", tabindex: 0, role: "region", "aria-label": caption },
      tableOf(caption, columns.map(({ head }) => head), columns.map(({ kind }) => kind ?? null), this._body));
  }

  /** Show these rows. */
  show(rows) {
    const lines = rows.map((row) => this._line(row));
    const ids = new Set(rows.map(this._id));
    for (const id of this._held.keys()) if (!ids.has(id)) this._held.delete(id);
    arrange(this._body, lines);
    mark(this.element, "hidden", rows.length === 0);
  }

  _line(row) {
    const id = this._id(row);
    const made = JSON.stringify(row);
    const held = this._held.get(id);
    if (held?.made === made) return held.line;
    const line = el("tr", { role: "row" }, this._columns.map((column, place) => cellOf(column, place, row)));
    if (held) replace(held.line, line);
    this._held.set(id, { made, line });
    return line;
  }
}

function cellOf({ head, cell, kind }, place, row) {
  const value = cell(row);
  const given = { "data-head": head, class: kind ?? null, role: place ? "cell" : "rowheader", scope: place ? null : "row" };
  return el(place ? "td" : "th", given, value instanceof Node ? value : String(value));
}

/** Put a line in the place of another; a focused control stays focused. */
function replace(before, after) {
  const controls = (line) => [...line.querySelectorAll("a, button")];
  const place = controls(before).indexOf(document.activeElement);
  before.replaceWith(after);
  if (place >= 0) controls(after)[place]?.focus();
}
