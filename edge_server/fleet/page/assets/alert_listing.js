/** A table of alerts with what may be done about them: of all, or of one device. */

import { el } from "../dom.js";
import { UNKNOWN } from "../units.js";
import { actionButton } from "./action_dialog.js";
import { mark } from "./device_parts.js";
import { Listing } from "./listing.js";
import { ago } from "./times.js";

const SEVERITIES = { info: "rest", warning: "warn", critical: "bad" };

/** The table; `more` is what follows a change, `about` whether rows say what they are about. */
export function alertListing(session, more, { about = true } = {}) {
  const mayChange = session.action("alerts.silence");
  return new Listing({ caption: "Alerts", id: ({ rule, kind, federation, name }) => [rule, kind, federation, name].join("/"), columns: [
    ...(about ? [{ head: "About", cell: subjectOf }] : []),
    { head: "Severity", cell: ({ severity }) => mark(SEVERITIES[severity] ?? "rest", severity) },
    { head: "Alert", cell: ({ rule }) => rule },
    { head: "State", cell: ({ state, acknowledged_by: who }) => (who ? `${state} by ${who.replace(/^[a-z]+:/, "")}` : state) },
    { head: "Since", cell: ({ since }) => ago(since) },
    { head: "What", kind: "value-cell", cell: ({ text }) => text },
    { head: "Next", kind: "value-cell", cell: ({ remedy }) => remedy || UNKNOWN },
    ...(mayChange ? [{ head: "Change", cell: (row) => buttons(session, row, more) }] : []),
  ] });
}

function subjectOf({ kind, name, place }) {
  const text = kind === "device" ? name : `${kind} ${name}`;
  return place === "#alerts" ? text : el("a", { href: place, text });
}

function buttons(session, { rule, kind, federation, name, acknowledged_by: who }, more) {
  const values = { where: `${kind}=${name}`, lasts: "2h" };
  return el("div", { class: "acts" },
    who ? null : actionButton(session, "alerts.acknowledge", { rule, kind, federation, name }, { ...more, subject: `${rule}, ${name}` }),
    actionButton(session, "alerts.silence", {}, { ...more, values, subject: name }));
}
