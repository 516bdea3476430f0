/** The list of events, newest first, and its requests to the server. */

import { arrange, el, emptyState, mark, tableOf, write } from "./dom.js";
import { ask } from "./events.js";
import { stateMark } from "./fleet_columns.js";
import { deviceRoute, routeTo } from "./router.js";
import { countText, momentText, some } from "./units.js";

export const KINDS = { join: "good", loss: "warn", refusal: "bad", renewal: "rest", round: "busy", delivery: "good", rollout: "busy", notice: "rest" };
const STEP = 100;
const MOST = 2000;
const HEADS = ["Time", "Kind", "Device", "Event", "Count"];

/** The events of these kinds and this device; only changes are requested. */
export class EventFeed {
  constructor({ kind = "", device = "" } = {}) {
    this._words = { kind, device };
    this._known = new Map();
    this._last = 0;
    this._asking = false;
    this.events = [];
  }

  /** Fetch the changes up to number `last`; whether an answer came. */
  async follow(last) {
    if (this._asking || (this._answered && last <= this._last)) return false;
    this._asking = true;
    try {
      const words = new URLSearchParams({ ...this._words, after: this._last });
      this.take(await ask(`api/events?${words}`));
      return true;
    } catch {
      return false; // the banner reports a lost server; the next event repeats the request
    } finally {
      this._asking = false;
    }
  }

  /** Merge an answer: changed events replace their earlier values. */
  take({ events, last }) {
    this._answered = true;
    this._last = last;
    for (const event of events) this._known.set(event.id, event);
    this.events = [...this._known.values()].sort((one, other) => other.last_at - one.last_at || other.id - one.id).slice(0, MOST);
    this._known = new Map(this.events.map((event) => [event.id, event]));
  }
}

/** The table of events; `devices` says whether it has a column of devices. */
export class EventTable {
  constructor({ devices = true } = {}) {
    this._devices = devices;
    this._most = STEP;
    this._lines = new Map();
    this._body = el("tbody", { role: "rowgroup" });
    this._more = el("button", { type: "button", class: "quiet", on: { click: () => this._further() } });
    this._none = emptyState("No events yet", "Joins, losses, refusals, rounds, deliveries and rollouts are listed here as they happen.");
    this._heads = HEADS.filter((head) => devices || head !== "Device");
    this._table = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Events" },
      tableOf("Events, the latest first", this._heads, this._heads.map((head) => (head === "Count" ? "number" : null)), this._body));
    this.element = el("div", { class: "listed" }, this._none, this._table, this._more);
  }

  /** Show these sorted events. */
  show(events) {
    this._events = events;
    mark(this._none, "hidden", events.length > 0);
    mark(this._table, "hidden", events.length === 0);
    mark(this._more, "hidden", events.length <= this._most);
    write(this._more, `Show ${some(Math.min(STEP, Math.max(0, events.length - this._most)), "more event")}`);
    const shown = events.slice(0, this._most);
    const kept = new Map(shown.map((event) => [event.id, this._line(event)]));
    this._lines = kept;
    arrange(this._body, [...kept.values()].map(({ row }) => row));
  }

  _further() {
    this._most += STEP;
    this.show(this._events);
  }

  _line(event) {
    const known = this._lines.get(event.id);
    return known?.of === event ? known : { of: event, row: this._row(event) };
  }

  _row({ last_at: at, kind, device, text, count }) {
    const named = device ? (device.startsWith("(") ? device : el("a", { href: deviceRoute(device), text: device })) : "";
    const cells = [momentText(at), stateMark(KINDS[kind] ?? "rest", kind), ...(this._devices ? [named] : []), text, count > 1 ? countText(count) : ""];
    return el("tr", { role: "row" }, cells.map((cell, place) => {
      const head = this._heads[place];
      const given = { "data-head": head, role: place ? "cell" : "rowheader", class: head === "Event" ? "words" : head === "Count" ? "number" : null };
      return el(place ? "td" : "th", { ...given, scope: place ? null : "row" }, cell);
    }));
  }
}
