/** The devices: filtered and sorted by the server, one page of rows at a time. */

import { choices, el, field, mark, write } from "../dom.js";
import { replaceRoute, routeTo } from "../router.js";
import { countText, some, UNKNOWN } from "../units.js";
import { actionButton } from "./action_dialog.js";
import { labelList, stateOf } from "./device_parts.js";
import { Listing } from "./listing.js";
import { ListView } from "./list_view.js";
import { ago, until } from "./times.js";

const ROWS = 100;
const PAUSE_MS = 250;
const SORTS = [["device", "Name"], ["state", "State"], ["-seen", "Seen last"], ["seen", "Silent longest"], ["certificate", "Certificate ends"], ["site", "Site"], ["client", "Client"], ["model", "Model"]];

/** The address of a device's page. */
export const deviceRoute = ({ federation, device }) => routeTo("devices", [federation, device]);

/** The section; filter, order and place are part of the address. */
export class DevicesView extends ListView {
  constructor(session) {
    const columns = [
      { head: "Device", cell: (row) => el("a", { href: deviceRoute(row), text: row.device }) },
      { head: "Federation", cell: ({ federation }) => federation },
      { head: "State", cell: ({ state }) => stateOf(state) },
      { head: "Last seen", cell: ({ seen_at: at }) => ago(at) },
      { head: "Labels", kind: "value-cell", cell: ({ labels }) => labelList(labels) },
      { head: "Certificate", cell: ({ certificate_until: at }) => until(at) },
      { head: "Client", cell: ({ client }) => client || UNKNOWN },
      { head: "Model", kind: "value-cell", cell: ({ model }) => model || UNKNOWN },
      { head: "Note", kind: "value-cell", cell: ({ note }) => note || UNKNOWN },
      ...(session.action("devices.label") ? [{ head: "Change", cell: (row) => this._buttons(row) }] : []),
    ];
    const listing = new Listing({ caption: "Devices", columns, id: ({ federation, device }) => `${federation}/${device}` });
    const none = ["No matching devices", "Devices are listed as soon as they have connected, or were enrolled."];
    const form = el("form", { class: "tools", role: "search", "aria-label": "Devices" });
    const pager = el("nav", { class: "pager", "aria-label": "Pages of the list" });
    super({ session, id: "devices-title", title: "Devices", none, more: [form, listing.element, pager] });
    Object.assign(this, { _listing: listing, _words: { where: "", find: "", sort: "device", offset: 0 } });
    this._fillForm(form);
    this._fillPager(pager);
    this.element.insertBefore(this.problem, listing.element);
  }

  go(route) {
    this._words = {
      where: route.words.get("where") ?? "", find: route.words.get("find") ?? "",
      sort: route.words.get("sort") ?? "device", offset: Number(route.words.get("offset") ?? 0) || 0,
    };
    for (const [name, input] of [["where", this._where], ["find", this._find]]) if (input.value !== this._words[name]) input.value = this._words[name];
    this._sort.value = this._words.sort;
    super.go(route);
  }

  path() {
    return `api/devices?${new URLSearchParams({ ...this._words, limit: ROWS })}`;
  }

  answered({ total, matching, online, offset, rows }) {
    if (!rows.length && offset > 0 && matching > 0) {
      this._ask({ offset: 0 });
      return;
    }
    this._listing.show(rows);
    this.empty(rows.length === 0);
    write(this._count, `${matching === total ? some(total, "device") : `${countText(matching)} of ${some(total, "device")}`}, ${countText(online)} online`);
    write(this._place, rows.length ? `${countText(offset + 1)} to ${countText(offset + rows.length)}` : "");
    mark(this._back, "disabled", offset === 0);
    mark(this._on, "disabled", offset + rows.length >= matching);
    mark(this._pager, "hidden", matching <= ROWS);
  }

  _buttons(row) {
    const given = { federation: row.federation, device: row.device };
    const done = ({ said }) => (this.session.say(said), this.load());
    return el("div", { class: "acts" }, actionButton(this.session, "devices.label", given, { done, subject: row.device }));
  }

  _fillForm(form) {
    this._where = el("input", { type: "search", placeholder: "site=barn, role!=camera", autocomplete: "off", autocapitalize: "off", spellcheck: "false" });
    this._find = el("input", { type: "search", placeholder: "name, board, note", autocomplete: "off", autocapitalize: "off", spellcheck: "false" });
    this._sort = el("select");
    choices(this._sort, SORTS);
    this._count = el("p", { class: "note count", role: "status" });
    const typed = () => {
      clearTimeout(this._typing);
      this._typing = setTimeout(() => this._ask({ where: this._where.value.trim(), find: this._find.value.trim(), offset: 0 }), PAUSE_MS);
    };
    form.addEventListener("input", typed);
    this._sort.addEventListener("change", () => this._ask({ sort: this._sort.value, offset: 0 }));
    form.addEventListener("submit", (event) => event.preventDefault());
    const where = field("Where", this._where);
    where.classList.add("filter");
    form.append(where, field("Find", this._find), field("Sort by", this._sort), this._count);
  }

  _fillPager(pager) {
    const step = (rows) => () => this._ask({ offset: Math.max(0, this._words.offset + rows) });
    this._back = el("button", { type: "button", text: "Previous", on: { click: step(-ROWS) } });
    this._on = el("button", { type: "button", text: "Next", on: { click: step(ROWS) } });
    this._place = el("p", { class: "note", role: "status" });
    this._pager = pager;
    pager.append(this._back, this._place, this._on);
  }

  _ask(change) {
    Object.assign(this._words, change);
    const { sort, offset, ...words } = this._words;
    replaceRoute(routeTo("devices", [], { ...words, sort: sort === "device" ? "" : sort, offset: offset || "" }));
    this.load();
  }
}
