/** The tiers: the share of the model that each one trains, and its ONNX file. */

import { el, mark, plainTable } from "./dom.js";
import { bytesText, countText, ratioText, siText } from "./units.js";

/** A row per tier with a download link. */
export class TiersTable {
  constructor() {
    this._table = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Tiers" });
    this.element = el("section", { "aria-labelledby": "tiers-title" }, el("h3", { id: "tiers-title", text: "Tiers" }), this._table);
    this._made = "";
  }

  /** Draw the tiers of a run if they changed. */
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

/** A download link of a tier's ONNX file, or a text if there is none yet. */
export function onnxLink(tier, onnx, bytes) {
  if (!onnx) return "not exported yet";
  // The server gives an absolute path; behind a proxy this page may have another root.
  const href = onnx.replace(/^\/+/, "");
  return el("a", { href, download: `tier-${tier}.onnx`, text: `tier-${tier}.onnx (${bytesText(bytes)})` });
}

/** A tier's number with its colour. */
export function tierBadge(tier) {
  return el("span", { class: `tier inks${Number(tier) % 8}`, text: `${tier}` });
}
