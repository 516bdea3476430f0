/** A table that sorts by any column and renders only the visible rows. */

import { el, mark, write } from "./dom.js";

const ROW_HEIGHT = 38;
/** Least height in pixels of a row drawn as a card on a phone, with the gap below it; the same as in views.css. */
const CARD_HEIGHT = 196;
const CARD_GAP = 8;
const phone = matchMedia("(max-width: 40rem)");
const BEYOND = 8;
const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

/** Rows sorted by one column; unknown values come last in either direction, equal ones keep their order. */
export function sorted(rows, value, descending) {
  const sign = descending ? -1 : 1;
  return rows.toSorted((one, other) => {
    const [a, b] = [value(one) ?? null, value(other) ?? null];
    if (a === null || b === null) return (a === null) - (b === null);
    return sign * (typeof a === "number" && typeof b === "number" ? a - b : collator.compare(a, b));
  });
}

/** The rows to render: the visible ones and a few more at both ends; `tops` are their upper ends and the last one's lower end. */
function windowOf(tops, top, height) {
  const first = Math.max(0, tops.findLastIndex((at) => at <= top) - BEYOND);
  const below = tops.findIndex((at) => at >= top + height);
  const last = Math.min(tops.length - 1, (below < 0 ? tops.length : below) + BEYOND);
  return [Math.min(first, last), last];
}

/** Columns are {key, head, title, value(row), fill(cell, row), width, number, card}; `id(row)` names a row. Those of a `card` show on a phone. */
export class SortedTable {
  constructor({ caption, columns, id, onSort, onPick = null }) {
    Object.assign(this, { _columns: columns, _id: id, _onSort: onSort, _onPick: onPick });
    this._rows = [];
    this._held = new Map();
    this._cards = new Map();
    this._sort = { key: columns[0].key, descending: false };
    this._everything = false;
    this._heads = columns.map((column) => this._head(column));
    this._above = el("tr", { class: "spacer", role: "row", "aria-hidden": "true" }, el("td", { colspan: columns.length }));
    this._below = this._above.cloneNode(true);
    this._body = el("tbody", { role: "rowgroup" }, this._above, this._below);
    this._table = el("table", { class: "rows", role: "table" }, el("caption", { class: "unseen", text: caption }),
      el("colgroup", {}, columns.map((column) => widthOf(column))),
      el("thead", { role: "rowgroup" }, el("tr", { role: "row", "aria-rowindex": 1 }, this._heads)), this._body);
    this._table.style.width = `${columns.reduce((sum, { width }) => sum + width, 0)}px`;
    this.element = el("div", { class: "scroll tall", tabindex: 0, role: "region", "aria-label": caption }, this._table);
    this.element.addEventListener("scroll", () => this._place(), { passive: true });
    new ResizeObserver(() => this._place()).observe(this.element);
    phone.addEventListener("change", () => this._place());
    addEventListener("beforeprint", () => this._whole(true));
    addEventListener("afterprint", () => this._whole(false));
  }

  /** Show these rows, sorted as the reader last asked. */
  show(rows, sort) {
    this._sort = sort;
    const column = this._columns.find(({ key }) => key === sort.key) ?? this._columns[0];
    this._rows = sorted(rows, column.value, sort.descending);
    mark(this._table, "aria-rowcount", rows.length + 1);
    this._heads.forEach((head, place) => this._say(head, this._columns[place], column));
    this._place();
  }

  /** Write again what changes with time alone. */
  tick() {
    for (const held of this._held.values()) this._fill(held, held.row);
  }

  _head(column) {
    const button = el("button", { type: "button", title: column.title ?? null }, el("span", { text: column.head }),
      el("span", { class: "arrow", "aria-hidden": "true" }));
    button.addEventListener("click", () => {
      const again = this._sort.key === column.key;
      this._onSort({ key: column.key, descending: again ? !this._sort.descending : Boolean(column.downFirst) });
    });
    return el("th", { scope: "col", role: "columnheader", class: column.number ? "number" : null }, button);
  }

  _say(head, column, chosen) {
    const order = this._sort.descending ? "descending" : "ascending";
    mark(head, "aria-sort", column === chosen ? order : null);
  }

  _whole(everything) {
    this._everything = everything;
    this._place();
  }

  /** Bring the rows in the document in line with what is in sight. */
  _place() {
    const { scrollTop, clientHeight } = this.element;
    const tops = this._tops();
    const [first, last] = this._everything ? [0, this._rows.length] : windowOf(tops, scrollTop, clientHeight);
    const shown = this._rows.slice(first, last);
    this._release(new Set(shown.map(this._id)));
    this._above.firstChild.style.height = `${tops[first]}px`;
    this._below.firstChild.style.height = `${tops.at(-1) - tops[last]}px`;
    let next = this._above.nextSibling;
    shown.forEach((row, place) => {
      const { line } = this._hold(row, first + place);
      if (line === next) next = next.nextSibling;
      else this._body.insertBefore(line, next);
    });
    if (phone.matches) this._measure();
  }

  /** The upper end of each row, and the lower end of the last: cards are as high as they were drawn last. */
  _tops() {
    const tops = [0];
    for (const row of this._rows) tops.push(tops.at(-1) + (phone.matches ? (this._cards.get(this._id(row)) ?? CARD_HEIGHT) : ROW_HEIGHT));
    return tops;
  }

  _measure() {
    for (const [id, { line }] of this._held) if (line.offsetHeight) this._cards.set(id, line.offsetHeight + CARD_GAP);
  }

  _release(kept) {
    for (const [id, { line }] of this._held) {
      if (kept.has(id)) continue;
      // Who was in that row stays in the table.
      if (line.contains(document.activeElement)) this.element.focus({ preventScroll: true });
      line.remove();
      this._held.delete(id);
    }
  }

  _hold(row, place) {
    const id = this._id(row);
    const held = this._held.get(id) ?? this._made(id);
    mark(held.line, "aria-rowindex", place + 2);
    if (held.row !== row) this._fill(held, row);
    return held;
  }

  _made(id) {
    const cells = this._columns.map((column, place) =>
      el(place ? "td" : "th", {
        scope: place ? null : "row", role: place ? "cell" : "rowheader", class: column.number ? "number" : null, "data-head": column.head, "data-card": column.card,
      }));
    const line = el("tr", { role: "row" }, cells);
    if (this._onPick) line.addEventListener("click", (event) => this._picked(event, id));
    const held = { line, cells, row: null };
    this._held.set(id, held);
    return held;
  }

  _picked(event, id) {
    // A link does so itself, and who selects text wants to copy it.
    if (!event.target.closest("a") && getSelection().isCollapsed) this._onPick(id);
  }

  _fill(held, row) {
    held.row = row;
    this._columns.forEach((column, place) => column.fill(held.cells[place], row));
  }
}

/** A column that is nothing but text. */
export const textColumn = (column, text) => ({ ...column, fill: (cell, row) => write(cell, text(row)) });

function widthOf(column) {
  const col = el("col");
  col.style.width = `${column.width}px`;
  return col;
}
