/** ONNX variants: the one that each device chose and why, whether it serves it, and the tiers' files. */

import { el, emptyState, mark, plainTable } from "./dom.js";
import { deviceRoute } from "./router.js";
import { onnxLink, tierBadge } from "./tiers_table.js";
import { bytesText, msText, percentText } from "./units.js";

const HEADS = ["Device", "Tier", "Variant", "Size", "Latency", "Accuracy", "Why", "Served"];

/** Whether the new model is served, or the earlier one was kept, and why. */
const servedText = (verdict) => [verdict?.served === false ? `no, ${verdict.earlier} is kept` : "yes", verdict?.why].filter(Boolean).join(": ");

/** The panel. */
export class VariantsPanel {
  constructor() {
    this._files = el("ul", { class: "files", "aria-label": "ONNX files by tier" });
    this._none = emptyState("No device has exported its model yet", "Devices export after the last round if the run delivers models.");
    this._table = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Variants" });
    this.element = el("section", { "aria-labelledby": "variants-title" }, el("h3", { id: "variants-title", text: "ONNX" }), this._files, this._none, this._table);
  }

  /** The tiers' files. */
  files(tiers) {
    const there = tiers.filter(({ onnx }) => onnx);
    const made = JSON.stringify(there);
    if (made === this._made) return;
    this._made = made;
    this._files.replaceChildren(...there.map(({ tier, onnx, onnx_bytes: bytes }) => el("li", {}, onnxLink(tier, onnx, bytes))));
  }

  /** What each device took. */
  show(variants) {
    mark(this._none, "hidden", variants.length > 0);
    mark(this._table, "hidden", variants.length === 0);
    const rows = variants.map(({ device, tier, variant, onnx_bytes: bytes, latency_ms: ms, accuracy, why, verdict }) => [
      el("a", { href: deviceRoute(device), text: device }), tierBadge(tier), variant ?? "-", bytesText(bytes), msText(ms), percentText(accuracy), why ?? "", servedText(verdict),
    ]);
    this._table.replaceChildren(plainTable("Variants chosen by devices", HEADS, rows));
  }
}
