/** The audit log: who changed what, the newest first. */

import { el, field } from "../dom.js";
import { replaceRoute, routeTo } from "../router.js";
import { momentText, UNKNOWN } from "../units.js";
import { Listing } from "./listing.js";
import { ListView } from "./list_view.js";

const PAUSE_MS = 250;

/** The section; its filter is part of the address. */
export class AuditView extends ListView {
  constructor(session) {
    const columns = [
      { head: "When", cell: ({ at }) => momentText(at) },
      { head: "Who", cell: ({ who }) => who },
      { head: "What", cell: ({ what }) => what },
      { head: "Of what", cell: ({ target }) => target || UNKNOWN },
      { head: "Before", kind: "value-cell", cell: ({ before }) => valueOf(before) },
      { head: "After", kind: "value-cell", cell: ({ after }) => valueOf(after) },
    ];
    const listing = new Listing({ caption: "Changes, the newest first", columns, id: (entry) => JSON.stringify(entry) });
    const form = el("form", { class: "tools", role: "search", "aria-label": "Audit log" });
    const none = ["No matching change", "Every change by a command or on this page is listed here."];
    super({ session, id: "audit-title", title: "Audit log", none, more: [form, listing.element] });
    Object.assign(this, { _listing: listing, _who: el("input", { type: "search", autocomplete: "off" }), _what: el("input", { type: "search", autocomplete: "off" }) });
    form.append(field("Who", this._who), field("What", this._what));
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", () => {
      clearTimeout(this._typing);
      this._typing = setTimeout(() => this._ask(), PAUSE_MS);
    });
  }

  go(route) {
    [this._who.value, this._what.value] = [route.words.get("who") ?? "", route.words.get("what") ?? ""];
    super.go(route);
  }

  path() {
    return `api/audit?${new URLSearchParams({ who: this._who.value.trim(), what: this._what.value.trim() })}`;
  }

  answered({ entries }) {
    this._listing.show(entries);
    this.empty(entries.length === 0);
  }

  _ask() {
    replaceRoute(routeTo("audit", [], { who: this._who.value.trim(), what: this._what.value.trim() }));
    this.load();
  }
}

/** What an entry says of a value: `labels: site=barn; note: empty`. */
function valueOf(value) {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return partOf("", value);
  return Object.entries(value).map(([name, part]) => `${name.replaceAll("_", " ")}: ${partOf(name, part)}`).join("; ") || "nothing";
}

function partOf(name, value) {
  if (value === null) return UNKNOWN;
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number") return /(_at|^until|^at)$/.test(name) ? momentText(value) : String(value);
  if (Array.isArray(value)) return value.map((part) => partOf(name, part)).join(" ") || "none";
  if (typeof value === "object") return Object.entries(value).map(([key, part]) => `${key}=${partOf(key, part)}`).join(", ") || "none";
  return value || "empty";
}
