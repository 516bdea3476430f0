/** The events of a run (joins, losses, refusals, renewals, rounds, deliveries, rollouts), filtered by kind and words. */

import { el, field, mark, write } from "./dom.js";
import { EventFeed, EventTable, KINDS } from "./event_table.js";
import { replaceRoute, routeTo } from "./router.js";
import { countText, some } from "./units.js";

/** Whether every word occurs in an event's device, text or reason. */
export function says({ device, text, reason }, words) {
  const said = `${device} ${text} ${reason}`.toLowerCase();
  return words.toLowerCase().split(/\s+/).every((word) => said.includes(word));
}

/** The section; its filter is part of the address. */
export class EventsView {
  constructor() {
    Object.assign(this, { _kinds: new Set(), _words: "", _feed: new EventFeed() });
    this._text = el("input", { type: "search", placeholder: "device, words, reason", autocomplete: "off", spellcheck: "false" });
    this._text.addEventListener("input", () => this._ask({ words: this._text.value.trim() }));
    this._count = el("p", { class: "note count", role: "status" });
    this._chips = new Map(Object.keys(KINDS).map((kind) => [kind, this._chip(kind)]));
    this._table = new EventTable();
    this.element = el("section", { class: "view", "aria-labelledby": "events-title" }, el("h2", { id: "events-title", text: "Events" }),
      el("ul", { class: "chips", "aria-label": "Kinds of events" }, [...this._chips.values()].map((chip) => el("li", {}, chip))),
      el("form", { class: "tools", role: "search", "aria-label": "Events", on: { submit: (event) => event.preventDefault() } }, field("Find", this._text), this._count),
      this._table.element);
  }

  /** Apply the filter of the address. */
  go({ words }) {
    const kinds = (words.get("kind") ?? "").split(",").filter((kind) => kind in KINDS);
    if (kinds.join() !== [...this._kinds].join()) this._feed = new EventFeed({ kind: kinds.join() });
    this._kinds = new Set(kinds);
    this._words = words.get("text") ?? "";
    if (this._text.value.trim() !== this._words) this._text.value = this._words;
    for (const [kind, chip] of this._chips) mark(chip, "aria-pressed", String(this._kinds.has(kind)));
    this._draw();
    if (this._last !== undefined) this._follow();
  }

  /** Request new events. */
  show({ run }) {
    this._last = run?.events ?? 0;
    this._follow();
  }

  async _follow() {
    const feed = this._feed;
    if ((await feed.follow(this._last)) && feed === this._feed) this._draw();
  }

  _draw() {
    const { events } = this._feed;
    const found = this._words ? events.filter((event) => says(event, this._words)) : events;
    write(this._count, found.length === events.length ? some(events.length, "event") : `${countText(found.length)} of ${some(events.length, "event")}`);
    this._table.show(found);
  }

  _ask({ kinds = this._kinds, words = this._words }) {
    replaceRoute(routeTo("events", [], { kind: [...kinds].join(), text: words }));
    this.go({ words: new URLSearchParams({ kind: [...kinds].join(), text: words }) });
  }

  _chip(kind) {
    const click = () => {
      const kinds = new Set(this._kinds);
      if (!kinds.delete(kind)) kinds.add(kind);
      this._ask({ kinds });
    };
    return el("button", { type: "button", class: "chip", "data-kind": KINDS[kind], "aria-pressed": "false", on: { click } },
      el("span", { class: "dot", "aria-hidden": "true" }), el("span", { text: kind }));
  }
}
