/** A view of one list, which is requested again while it is visible. */

import { el, emptyState, mark, write } from "../dom.js";
import { read } from "./api.js";

const EVERY_MS = 5000;

/** Subclasses have `path()` and `answered(value)`; `title` heads the view, `none` is shown without rows. */
export class ListView {
  constructor({ session, id, title, none, more = [], head = [] }) {
    Object.assign(this, { session, _turn: 0, _timer: null });
    this.problem = el("p", { class: "problem", role: "alert" });
    this._none = el("div", { hidden: true }, emptyState(...none));
    this.heading = el("h2", { id, text: title });
    this.element = el("section", { class: "view", "aria-labelledby": id, hidden: true },
      el("div", { class: "title" }, this.heading, ...head), ...more, this.problem, this._none);
  }

  /** Begin to request: the view is visible now. */
  go(route) {
    this.route = route;
    this.load();
  }

  /** Stop: another view is visible. */
  leave() {
    clearTimeout(this._timer);
    this._turn += 1;
  }

  /** Request now, and again later. */
  async load() {
    clearTimeout(this._timer);
    const turn = (this._turn += 1);
    try {
      const value = await read(this.path());
      if (turn !== this._turn) return;
      write(this.problem, "");
      this.session.reached(value);
      this.answered(value);
    } catch (error) {
      if (turn !== this._turn) return;
      if (error.status) write(this.problem, error.message);
      else this.session.lost();
    }
    this._timer = setTimeout(() => (document.hidden ? this._later() : this.load()), EVERY_MS);
  }

  /** Show or hide the text for an empty list. */
  empty(is) {
    mark(this._none, "hidden", !is);
  }

  _later() {
    document.addEventListener("visibilitychange", () => this.load(), { once: true });
  }
}
