/** A grid of cells on a canvas: hovering shows a cell's value in `readout`, clicking opens it. */

import { el, write } from "./dom.js";
import { onTheme } from "./theme.js";

// Cividis (Nuñez, Anderton, Renslow 2018), which looks alike with and without colour blindness.
const CIVIDIS = [[0, 32, 77], [39, 61, 109], [87, 93, 109], [122, 123, 120], [159, 156, 115], [202, 192, 95], [255, 234, 70]];
// From blue over white to orange: below zero, zero, above.
const DIVERGING = [[0, 95, 153], [92, 162, 206], [244, 244, 242], [226, 148, 88], [163, 66, 0]];

/** The colour of a share from 0 to 1: dark blue to yellow. */
export const sequential = (share) => between(CIVIDIS, share);

/** The colour of -1 to 1. */
export const diverging = (value) => between(DIVERGING, (value + 1) / 2);

/** Black or white, whichever has more contrast on that colour. */
export function inkOn([red, green, blue]) {
  const linear = [red, green, blue].map((value) => ((value / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  return luminance > 0.18 ? "#000" : "#fff";
}

function between(stops, share) {
  const place = Math.max(0, Math.min(1, Number.isFinite(share) ? share : 0)) * (stops.length - 1);
  const [low, part] = [Math.min(Math.floor(place), stops.length - 2), place - Math.min(Math.floor(place), stops.length - 2)];
  return stops[low].map((value, band) => Math.round(value + (stops[low + 1][band] - value) * part));
}

/** The cells. `height` is a row's in pixels; `paint(context, box, row, column)` fills one box. */
export class CellPicture {
  constructor({ paint, read, readout, onPick = null }) {
    Object.assign(this, { _paint: paint, _read: read, _readout: readout, _onPick: onPick });
    this._shape = { rows: 0, columns: 0, height: 14 };
    this.canvas = el("canvas", { class: onPick ? "cells pick" : "cells", role: "img" });
    this._gutter = el("ol", { class: "gutter", "aria-hidden": "true" });
    this._stage = el("div", { class: "stage" }, this.canvas);
    this.element = el("div", { class: "picture" }, this._gutter, this._stage);
    this.canvas.addEventListener("pointermove", (event) => this._hover(this._at(event)));
    this.canvas.addEventListener("pointerleave", () => this._hover(null));
    this.canvas.addEventListener("click", (event) => this._pick(this._at(event)));
    new ResizeObserver(() => this.draw()).observe(this._stage);
    onTheme(() => this.draw());
  }

  /** Draw rows by columns cells next to the rows' names, with `label` for screen readers. */
  show(shape, names, label) {
    this._shape = shape;
    this.canvas.setAttribute("aria-label", label);
    const lines = names.map((text) => el("li", { text, title: text }));
    for (const line of lines) line.style.height = `${shape.height}px`;
    this._gutter.replaceChildren(...lines);
    this.draw();
  }

  /** Draw again, for another width or theme. */
  draw() {
    const { rows, columns, height } = this._shape;
    const width = this._stage.clientWidth;
    if (!rows || !columns || !width) return;
    const scale = devicePixelRatio;
    this.canvas.style.height = `${rows * height}px`;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(rows * height * scale);
    const context = this.canvas.getContext("2d");
    context.scale(scale, scale);
    const gap = width / columns > 5 ? 1 : 0;
    for (let row = 0; row < rows; row += 1) {
      for (let column = 0; column < columns; column += 1) {
        const [left, right] = [(column * width) / columns, ((column + 1) * width) / columns];
        this._paint(context, { left, top: row * height, width: right - left - gap + (gap ? 0 : 0.5), height: height - 1 }, row, column);
      }
    }
  }

  _at(event) {
    const { rows, columns, height } = this._shape;
    const row = Math.floor(event.offsetY / height);
    const column = Math.floor((event.offsetX / this.canvas.clientWidth) * columns);
    const inside = row >= 0 && row < rows && column >= 0 && column < columns;
    return inside ? { row, column } : null;
  }

  _hover(cell) {
    write(this._readout, cell ? this._read(cell.row, cell.column) : "\u00a0");
  }

  _pick(cell) {
    if (!cell) return;
    this._hover(cell);
    this._onPick?.(cell.row, cell.column);
  }
}

/** Fill a box with a colour, and write a text in it if it fits. */
export function fillCell(context, box, rgb, text = "") {
  context.fillStyle = `rgb(${rgb.join(" ")})`;
  context.fillRect(box.left, box.top, box.width, box.height);
  if (!text || box.width < text.length * 7 + 4 || box.height < 14) return;
  context.fillStyle = inkOn(rgb);
  context.font = "11px system-ui, sans-serif";
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillText(text, box.left + box.width / 2, box.top + box.height / 2);
}
