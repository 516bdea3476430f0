/** A view of one thing: facts and buttons, which are made again only when the answer changes. */

import { el, write } from "../dom.js";
import { ListView } from "./list_view.js";

/** Subclasses have `path()`, `factsOf(value)`, `buttonsOf(value)`, `name(route)` and `shown(value)` for the rest. */
export class DetailView extends ListView {
  constructor({ session, id, back, more }) {
    const acts = el("div", { class: "acts" });
    const facts = el("dl", { class: "card facts" });
    super({ session, id, title: "", none: [""], head: [acts], more: [facts, ...more] });
    this.element.prepend(el("p", {}, el("a", back)));
    Object.assign(this, { _acts: acts, _facts: facts, _made: "" });
  }

  go(route) {
    this._made = "";
    write(this.heading, this.name(route) ?? "");
    this._acts.replaceChildren();
    this._facts.replaceChildren();
    this.shown(null);
    super.go(route);
  }

  answered(value) {
    const { now, ...known } = value;
    const made = JSON.stringify(known);
    if (made === this._made) return;
    const focused = this._acts.contains(document.activeElement) ? document.activeElement.dataset.action : null;
    this._made = made;
    this._facts.replaceChildren(...this.factsOf(value).map(([name, fact]) => el("div", {}, el("dt", { text: name }), el("dd", {}, fact instanceof Node ? fact : String(fact)))));
    this._acts.replaceChildren(...this.buttonsOf(value).filter((button) => button !== null));
    if (focused) this._acts.querySelector(`[data-action="${focused}"]`)?.focus();
    this.shown(value);
  }

  /** Tell what was done, and look again. */
  done({ said }) {
    this.session.say(said);
    this.load();
  }
}

/** A part with a heading, hidden until there is something in it. */
export function part(id, title, ...children) {
  return el("section", { class: "part", "aria-labelledby": id, hidden: true }, el("h3", { id, text: title }), ...children);
}

/** Lines of a log, the newest last. */
export class LogLines {
  constructor(caption) {
    this.element = el("pre", { class: "log", tabindex: 0, role: "region", "aria-label": caption });
  }

  /** Show these lines; who had scrolled to the end stays there. */
  show(lines) {
    const { scrollHeight, scrollTop, clientHeight } = this.element;
    const atEnd = scrollHeight - scrollTop - clientHeight < 8;
    write(this.element, lines.join("\n"));
    if (atEnd) this.element.scrollTop = this.element.scrollHeight;
  }
}
