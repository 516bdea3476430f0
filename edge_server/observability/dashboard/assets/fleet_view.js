/** The fleet: a row per device, filtered by words, state and tier, sorted by any column. */

import { choices, el, emptyState, field, mark, write } from "./dom.js";
import { fleetColumns, labelsText } from "./fleet_columns.js";
import { deviceRoute, replaceRoute, routeTo } from "./router.js";
import { kindOf, orderOf, stateText } from "./states.js";
import { serverNow } from "./store.js";
import { SortedTable } from "./table.js";
import { countText, some } from "./units.js";

const BY_TIER = "tier";

/** Whether every word occurs in a row's name, board, state or reasons, and the row has that state and tier. */
export function matches(row, { text, state, tier }) {
  if (state && row.state !== state) return false;
  if (tier && String(row.tier) !== tier) return false;
  if (!text) return true;
  const said = [row.device, row.board, row.processor, row.architecture, row.accelerator, stateText(row), Object.keys(row.refused ?? {}).join(" "), labelsText(row)]
    .join(" ").toLowerCase();
  return text.split(/[\s,]+/).filter(Boolean).every((word) => hasLabel(row, word) ?? said.includes(word.toLowerCase()));
}

/** Whether a row has the label that a word such as `site=barn` or `role!=camera` states; null for other words. */
function hasLabel({ labels }, word) {
  const found = /^([a-z][a-z0-9-]*)(!?)==?(.+)$/.exec(word);
  if (!found) return null;
  const [, key, not, value] = found;
  return ((labels ?? {})[key] === value) !== (not === "!");
}

/** The section; its filter and order are part of the address, so that a view can be shared. */
export class FleetView {
  constructor() {
    this._state = null;
    this._words = { text: "", state: "", tier: "", sort: BY_TIER };
    this._now = null;
    this._text = el("input", { type: "search", placeholder: "name, board, reason, site=barn", autocomplete: "off", spellcheck: "false" });
    [this._in, this._tier, this._order] = [el("select"), el("select"), el("select")];
    this._columns = fleetColumns(() => this._now);
    choices(this._order, this._columns.map(({ key, head }) => [key, head]));
    this._count = el("p", { class: "note count", role: "status" });
    this._counts = el("ul", { class: "chips", "aria-label": "Devices by state" });
    this._none = el("div");
    this._table = new SortedTable({
      caption: "Devices",
      columns: this._columns,
      id: ({ device }) => device,
      onSort: (sort) => this._ask({ sort: `${sort.descending ? "-" : ""}${sort.key}` }),
      onPick: (device) => (location.hash = deviceRoute(device)),
    });
    this.element = el("section", { class: "view fleet", "aria-labelledby": "fleet-title" },
      el("h2", { id: "fleet-title", text: "Fleet" }), this._counts, this._toolbar(), this._none, this._table.element);
  }

  /** Apply the filter and the order of the address. */
  go(route) {
    for (const name of Object.keys(this._words)) this._words[name] = route.words.get(name) ?? (name === "sort" ? BY_TIER : "");
    if (this._text.value !== this._words.text) this._text.value = this._words.text;
    if (this._state) this.show(this._state, Date.now() / 1000);
  }

  /** Draw the devices. */
  show(state, now) {
    this._state = state;
    this.tick(state, now);
    const rows = [...(state.fleet?.values() ?? [])].sort((one, other) => (one.device < other.device ? -1 : 1));
    this._offer(rows);
    const found = rows.filter((row) => matches(row, this._words));
    const all = found.length === rows.length;
    write(this._count, all ? some(rows.length, "device") : `${countText(found.length)} of ${some(rows.length, "device")}`);
    this._empty(state, rows, found);
    const descending = this._words.sort.startsWith("-");
    const key = this._words.sort.replace(/^-/, "");
    this._order.value = key;
    this._table.show(found, { key, descending });
  }

  /** Update the times since devices were last seen. */
  tick(state, now) {
    this._now = state.run?.live && !state.run.outcome ? serverNow(state, now) : null;
    if (this._state) this._table.tick();
  }

  _toolbar() {
    this._text.addEventListener("input", () => this._ask({ text: this._text.value.trim() }));
    this._in.addEventListener("change", () => this._ask({ state: this._in.value }));
    this._tier.addEventListener("change", () => this._ask({ tier: this._tier.value }));
    this._order.addEventListener("change", () => {
      const { key, downFirst } = this._columns.find((column) => column.key === this._order.value);
      this._ask({ sort: `${downFirst ? "-" : ""}${key}` });
    });
    const order = field("Sort by", this._order);
    order.classList.add("on-phone");
    return el("form", { class: "tools", role: "search", "aria-label": "Devices", on: { submit: (event) => event.preventDefault() } },
      field("Find", this._text), field("State", this._in), field("Tier", this._tier), order, this._count);
  }

  _ask(change) {
    Object.assign(this._words, change);
    const { sort, ...others } = this._words;
    replaceRoute(routeTo("fleet", [], { ...others, sort: sort === BY_TIER ? "" : sort }));
    if (this._state) this.show(this._state, Date.now() / 1000);
  }

  _offer(rows) {
    const counts = new Map();
    for (const { state } of rows) counts.set(state, (counts.get(state) ?? 0) + 1);
    const states = [...counts.keys()].sort((one, other) => orderOf(one) - orderOf(other));
    const tiers = [...new Set(rows.map(({ tier }) => tier))].sort((one, other) => one - other);
    const asked = this._words.state && !counts.has(this._words.state) ? [this._words.state] : [];
    choices(this._in, [["", "all"], ...[...states, ...asked].map((state) => [state, state])]);
    choices(this._tier, [["", "all"], ...tiers.map((tier) => [String(tier), String(tier)])]);
    [this._in.value, this._tier.value] = [this._words.state, this._words.tier];
    this._chips(states.map((state) => [state, counts.get(state)]));
  }

  _chips(counts) {
    const kept = new Map([...this._counts.children].map((item) => [item.dataset.state, item]));
    const items = counts.map(([state]) => kept.get(state) ?? this._chip(state));
    if (items.some((item, place) => item !== this._counts.children[place]) || items.length !== kept.size) this._counts.replaceChildren(...items);
    counts.forEach(([state, count], place) => {
      const [, , number] = items[place].firstChild.children;
      write(number, countText(count));
      mark(items[place].firstChild, "aria-pressed", String(this._words.state === state));
    });
  }

  _chip(state) {
    const click = () => this._ask({ state: this._words.state === state ? "" : state });
    const button = el("button", { type: "button", class: "chip", "data-kind": kindOf(state), on: { click } },
      el("span", { class: "dot", "aria-hidden": "true" }), el("span", { text: state }), el("span", { class: "value" }));
    return el("li", { "data-state": state }, button);
  }

  _empty(state, rows, found) {
    mark(this._table.element, "hidden", found.length === 0);
    mark(this._none, "hidden", found.length > 0);
    if (found.length) return;
    const command = `edge-client run --broker ADDRESS --federation ${state.run?.federation ?? "NAME"} --device-id NAME`;
    const none = emptyState("No device has joined yet", "Devices are listed here as they join. To start one, run on the device:", el("p", {}, el("code", { text: command })));
    this._none.replaceChildren(rows.length ? emptyState("No matching devices", "Try other words, or select all states and tiers.") : none);
  }
}
