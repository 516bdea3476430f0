/** Statistics of the devices' data: a row per feature, a row per class. */

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
