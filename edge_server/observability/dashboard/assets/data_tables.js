/** Statistics of the devices' data, and what frozen layers made of it once. */

import { el, mark, plainTable, write } from "./dom.js";

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** Hidden in a run that has asked for none. */
export class DataTables {
  constructor() {
    this._about = el("p", { class: "note" });
    this._features = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Features" });
    this._labels = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Classes" });
    this.element = el("section", { "aria-labelledby": "data-title", hidden: true },
      el("h3", { id: "data-title", text: "Data of the devices" }), this._about, this._features, this._labels);
    this._made = "";
  }

  /** Draw the statistics if they changed. */
  show({ statistics }) {
    mark(this.element, "hidden", !statistics);
    const made = JSON.stringify(statistics);
    if (!statistics || made === this._made) return;
    this._made = made;
    const { about, features, labels, feature_heads: featureHeads, label_heads: labelHeads } = statistics;
    write(this._about, about);
    this._features.replaceChildren(plainTable("Features", featureHeads.map(capital), features));
    mark(this._labels, "hidden", labels.length === 0);
    this._labels.replaceChildren(plainTable("Examples of each class", labelHeads.map(capital), labels));
  }
}

/** What frozen layers computed on each device; hidden where all layers run in every step. */
export class KeptFeatures {
  constructor() {
    this._about = el("p", { class: "note" });
    this._rows = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Features of each device" });
    this.element = el("section", { "aria-labelledby": "kept-title", hidden: true },
      el("h3", { id: "kept-title", text: "Computed once" }), this._about, this._rows);
    this._made = "";
  }

  /** Draw the rows if they changed. */
  show({ features }) {
    mark(this.element, "hidden", !features);
    const made = JSON.stringify(features);
    if (!features || made === this._made) return;
    this._made = made;
    write(this._about, features.about);
    this._rows.replaceChildren(plainTable("Features of each device", features.heads.map(capital), features.rows));
  }
}
