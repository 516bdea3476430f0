/** Marks that distinguish curves without colour: a dash pattern and a point shape. */

import { svg } from "./dom.js";

const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3], [5, 3], [12, 4, 2, 4, 2, 4], [3, 6], [14, 5]];
const SHAPES = [
  // Each a closed path around the origin, of radius 1.
  [[-0.8, -0.8], [0.8, -0.8], [0.8, 0.8], [-0.8, 0.8]],
  [[0, -1.1], [1, 0.8], [-1, 0.8]],
  [[0, -1.2], [1.2, 0], [0, 1.2], [-1.2, 0]],
  [[0, 1.1], [1, -0.8], [-1, -0.8]],
  [[-0.4, -1.1], [0.4, -1.1], [0.4, -0.4], [1.1, -0.4], [1.1, 0.4], [0.4, 0.4], [0.4, 1.1], [-0.4, 1.1], [-0.4, 0.4], [-1.1, 0.4], [-1.1, -0.4], [-0.4, -0.4]],
];

/** The style number `index`: 0 is the main curve, solid and round; 1 and up are the tiers. */
export function markOf(index) {
  const shape = index === 0 ? null : SHAPES[(index - 1) % SHAPES.length];
  return { token: `--s${index % 8}`, dash: DASHES[index % DASHES.length], shape };
}

/** The outline of a mark around (x, y). */
export function tracePoint(path, shape, x, y, radius) {
  if (shape === null) {
    path.moveTo(x + radius, y);
    path.arc(x, y, radius, 0, 2 * Math.PI);
    return;
  }
  shape.forEach(([dx, dy], place) => path[place ? "lineTo" : "moveTo"](x + dx * radius, y + dy * radius));
  path.closePath();
}

/** A piece of the curve, for a legend. */
export function swatch(index) {
  const { token, dash, shape } = markOf(index);
  const point = shape === null
    ? svg("circle", { cx: 17, cy: 6, r: 3.2 })
    : svg("polygon", { points: shape.map(([x, y]) => `${17 + x * 3.4},${6 + y * 3.4}`).join(" ") });
  return svg("svg", { class: `swatch ink${token.slice(2)}`, viewBox: "0 0 34 12", width: 34, height: 12, "aria-hidden": "true" },
    svg("line", { x1: 0, y1: 6, x2: 34, y2: 6, "stroke-dasharray": dash.join(" ") || null }), point);
}
