/** The model: the channels each tier keeps, similarity of clients, Grad-CAM, and the variants that devices serve. */

import { ChannelsPanel } from "./channels_panel.js";
import { el, emptyState, mark } from "./dom.js";
import { ask } from "./events.js";
import { GradcamPanel } from "./gradcam_panel.js";
import { SimilarityPanel } from "./similarity_panel.js";
import { VariantsPanel } from "./variants_panel.js";

const SOONEST_MS = 3000;

/** The section; while visible, it requests the model again after each closed round. */
export class ModelView {
  constructor() {
    this._asked = { at: 0, round: undefined, run: undefined };
    this._path = [];
    this._said = el("div", { "aria-live": "polite" });
    this._channels = new ChannelsPanel();
    this._similarity = new SimilarityPanel();
    this._gradcam = new GradcamPanel();
    this._variants = new VariantsPanel();
    this.element = el("section", { class: "view", "aria-labelledby": "model-title" }, el("h2", { id: "model-title", text: "Model" }),
      this._said, this._channels.element, this._similarity.element, this._gradcam.element, this._variants.element);
    this._said.replaceChildren(emptyState("Loading", "Requesting the channels from the server."));
  }

  /** Choose the group in the address. */
  go(route) {
    this._channels.choose(route.path[0] ?? "");
  }

  /** Request again if a round has closed, at most every `SOONEST_MS`. */
  show(state, now) {
    const { run, history } = state;
    if (!run) return;
    this._run = run;
    this._variants.files(run.tiers ?? []);
    const round = history.at(-1)?.round;
    const known = this._asked.round === round && this._asked.run === run.run;
    if (known || now * 1000 - this._asked.at < SOONEST_MS) return;
    this._asked = { at: now * 1000, round, run: run.run };
    this._load();
  }

  /** Send a postponed request. */
  tick(state, now) {
    this.show(state, now);
  }

  async _load() {
    try {
      this._draw(await ask("api/model"));
    } catch (error) {
      this._said.replaceChildren(emptyState("The model cannot be shown", error.message));
    }
    mark(this._said, "hidden", this._said.childElementCount === 0);
  }

  _draw(model) {
    this._said.replaceChildren();
    const tiers = (this._run.tiers ?? []).map(({ tier }) => tier);
    this._channels.show(model.groups ?? [], tiers);
    this._similarity.show(model.similarity);
    this._gradcam.show(model, tiers);
    this._variants.show(model.variants ?? []);
  }
}
