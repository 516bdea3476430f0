/** Grad-CAM of a tier's model: test images with a heat overlay. */

import { choices, el, emptyState, field, mark } from "./dom.js";
import { ask } from "./events.js";
import { ratioText } from "./units.js";

const COUNT = 8;

/** The panel; the server computes images on request. */
export class GradcamPanel {
  constructor() {
    this._tier = el("select");
    this._strength = el("input", { type: "range", min: 0, max: 100, step: 5, value: 60 });
    this._strength.addEventListener("input", () => this._lay());
    this._button = el("button", { type: "button", text: "Show examples", on: { click: () => this._load() } });
    this._said = el("div", { role: "status" });
    this._images = el("ul", { class: "examples", "aria-label": "Examples" });
    this._why = el("p", { class: "note" });
    this._tools = el("div", { class: "tools" }, field("Tier", this._tier), field("Overlay", this._strength), this._button);
    this.element = el("section", { "aria-labelledby": "gradcam-title" }, el("h3", { id: "gradcam-title", text: "What the model looks at" }),
      el("p", { class: "note", text: "Grad-CAM: yellow marks the regions that contributed most to the predicted class." }), this._why, this._tools, this._said, this._images);
  }

  /** Show whether examples can be computed, and for which tiers. */
  show({ gradcam, gradcam_why_not: why }, tiers) {
    mark(this._tools, "hidden", !gradcam);
    mark(this._why, "hidden", gradcam);
    this._why.textContent = gradcam ? "" : `Not available: ${why || "the server gave no reason"}`;
    choices(this._tier, tiers.map((tier) => [String(tier), String(tier)]));
    if (!this._chosen && tiers.length) this._tier.value = this._chosen = String(tiers.at(-1));
  }

  async _load() {
    const tier = this._tier.value;
    this._button.disabled = true;
    this._said.replaceChildren(el("p", { class: "note", text: "Computing examples" }));
    try {
      const { images, round } = await ask(`api/gradcam?tier=${encodeURIComponent(tier)}&count=${COUNT}`);
      this._images.replaceChildren(...images.map(example));
      this._said.replaceChildren(el("p", { class: "note", text: `Tier ${tier} after round ${round}` }));
      this._lay();
    } catch (error) {
      this._images.replaceChildren();
      this._said.replaceChildren(emptyState("No examples", error.message));
    }
    this._button.disabled = false;
  }

  _lay() {
    for (const heat of this._images.querySelectorAll(".heat")) heat.style.opacity = Number(this._strength.value) / 100;
  }
}

function example({ label, predicted, confidence, class_names: names, image, heat }) {
  const name = (index) => names?.[index] ?? String(index);
  const right = label === predicted;
  const text = right ? `${name(label)}, correct` : `${name(label)}, predicted ${name(predicted)}`;
  return el("li", {}, el("figure", {},
    el("div", { class: "stack" }, el("img", { src: image, alt: `Test image of class ${name(label)}` }), el("img", { class: "heat", src: heat, alt: "" })),
    el("figcaption", { class: right ? null : "wrong" }, el("span", { text }), el("span", { class: "note", text: ` ${ratioText(confidence)} confidence` }))));
}
