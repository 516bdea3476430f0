/** What lists and the page of a device have in common: a state's mark, labels. */

import { el } from "../dom.js";
import { UNKNOWN } from "../units.js";

const KINDS = { online: "good", offline: "gone", "never seen": "rest", revoked: "bad", removed: "gone" };

/** A word with a mark whose shape and colour tell its kind. */
export function mark(kind, text) {
  return el("span", { class: "state", "data-kind": kind }, el("span", { class: "dot", "aria-hidden": "true" }), el("span", { class: "words", text }));
}

/** A device's state. */
export const stateOf = (state) => mark(KINDS[state] ?? "rest", state);

/** Labels as a list; those in `own` were set by the operator. */
export function labelList(labels, own = {}) {
  const items = Object.entries(labels).map(([key, value]) => el("li", { "data-own": key in own, text: `${key}=${value}` }));
  return items.length ? el("ul", { class: "labels" }, items) : UNKNOWN;
}
