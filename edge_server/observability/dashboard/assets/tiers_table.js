/** The tiers: how much of the model each one trains, and its ONNX file. */

import { el, mark, plainTable } from "./dom.js";
import { bytesText, countText, ratioText, siText } from "./units.js";

/** A row per tier with a link to what can be downloaded. */
export class TiersTable {
  constructor() {
    this._table = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Tiers" });
    this.element = el("section", { "aria-labelledby": "tiers-title" }, el("h3", { id: "tiers-title", text: "Tiers" }), this._table);
    this._made = "";
  }

  /** Draw the tiers of a run, if they are others than before. */
  show(run) {
    const tiers = run.tiers ?? [];
    mark(this.element, "hidden", tiers.length === 0);
    const made = JSON.stringify(tiers);
    if (made === this._made) return;
    this._made = made;
    const heads = ["Tier", "Pruned", "Parameters", "Multiply-adds", "ONNX file"];
    this._table.replaceChildren(plainTable("Tiers, the weakest first", heads, tiers.map(tierRow)));
  }
}

function tierRow({ tier, ratio, parameters, macs, onnx, onnx_bytes: bytes }) {
  return [tierBadge(tier), ratioText(ratio), countText(parameters), siText(macs), onnxLink(tier, onnx, bytes)];
}

/** Where a tier's ONNX file is to be had, or that there is none yet. */
export function onnxLink(tier, onnx, bytes) {
  if (!onnx) return "not exported yet";
  // The server says the path from its root; this page may hang elsewhere behind a proxy.
  const href = onnx.replace(/^\/+/, "");
  return el("a", { href, download: `tier-${tier}.onnx`, text: `tier-${tier}.onnx (${bytesText(bytes)})` });
}

/** A tier's number beside its colour. */
export function tierBadge(tier) {
  return el("span", { class: `tier inks${Number(tier) % 8}`, text: `${tier}` });
}
