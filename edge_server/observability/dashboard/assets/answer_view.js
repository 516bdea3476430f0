/** A page that shows the server's answer for the path of its address and requests it again in each round. */

import { el, emptyState, mark, write } from "./dom.js";
import { ask } from "./events.js";

const SOONEST_MS = 1500;

/** The section: a heading, a back link, the answer. Subclasses have `paths(path)`, `unknown(path)`, `answered(answers)`. */
export class AnswerView {
  constructor({ id, back, to, panel, more = [] }) {
    Object.assign(this, { _path: [], _asked: {}, _turn: 0, _panel: panel, _more: more });
    this._title = el("h2", { id });
    this._said = el("div", { "aria-live": "polite" });
    this.element = el("section", { class: "view", "aria-labelledby": id },
      el("div", { class: "head" }, el("p", {}, el("a", { href: to, text: back })), this._title), this._said, panel.element, ...more);
  }

  /** Request what the address names. */
  go(route) {
    this._path = route.path;
    this._asked = {};
    write(this._title, this.title(route.path));
    this._reveal(false);
    this._said.replaceChildren();
    if (this._state) this.show(this._state, Date.now() / 1000);
  }

  /** Request again if the round has changed. */
  show(state, now) {
    this._state = state;
    const at = `${state.run?.run} ${state.run?.round} ${state.run?.phase} ${state.history.length}`;
    if (!this._path.length || !state.run || this._asked.at === at || now * 1000 - (this._asked.when ?? 0) < SOONEST_MS) return;
    this._asked = { at, when: now * 1000 };
    this._load();
  }

  /** Send a postponed request. */
  tick(state, now) {
    this.show(state, now);
  }

  async _load() {
    const turn = (this._turn += 1);
    try {
      const answers = await Promise.all(this.paths(this._path).map(ask));
      if (turn !== this._turn) return;
      this._said.replaceChildren();
      this._reveal(true);
      this.answered(answers);
    } catch (error) {
      if (turn === this._turn) this._said.replaceChildren(emptyState(this.unknown(this._path), error.message));
    }
  }

  _reveal(known) {
    for (const element of [this._panel.element, ...this._more]) mark(element, "hidden", !known);
  }
}
