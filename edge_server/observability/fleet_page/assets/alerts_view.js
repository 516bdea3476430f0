/** Alerts that are not resolved, and silences. */

import { el } from "../dom.js";
import { momentText, UNKNOWN } from "../units.js";
import { actionButton } from "./action_dialog.js";
import { mark } from "./device_parts.js";
import { deviceRoute } from "./devices_view.js";
import { Listing } from "./listing.js";
import { ListView } from "./list_view.js";
import { ago } from "./times.js";

const SEVERITIES = { info: "rest", warning: "warn", critical: "bad" };

/** The section. */
export class AlertsView extends ListView {
  constructor(session) {
    const silences = session.action("alerts.silence");
    const more = { done: ({ said }) => (session.say(said), this.load()) };
    const alerts = new Listing({ caption: "Alerts", id: ({ rule, kind, federation, name }) => [rule, kind, federation, name].join("/"), columns: [
      { head: "About", cell: subjectOf },
      { head: "Severity", cell: ({ severity }) => mark(SEVERITIES[severity] ?? "rest", severity) },
      { head: "Alert", cell: ({ rule }) => rule },
      { head: "State", cell: ({ state }) => state },
      { head: "Since", cell: ({ since }) => ago(since) },
      { head: "What", kind: "value-cell", cell: ({ text }) => text },
      { head: "Next", kind: "value-cell", cell: ({ remedy }) => remedy || UNKNOWN },
      ...(silences ? [{ head: "Change", cell: (row) => el("div", { class: "acts" }, silenceButton(session, row, more)) }] : []),
    ] });
    const silent = new Listing({ caption: "Silences", id: ({ number }) => String(number), columns: [
      { head: "Silence", cell: ({ number }) => String(number) },
      { head: "Devices", kind: "value-cell", cell: ({ where }) => where || "all" },
      { head: "Reason", kind: "value-cell", cell: ({ reason }) => reason },
      { head: "By", cell: ({ who }) => who },
      { head: "Until", cell: ({ until }) => momentText(until) },
      ...(silences ? [{ head: "Change", cell: ({ number }) => el("div", { class: "acts" }, actionButton(session, "alerts.unsilence", { number: String(number) }, { ...more, subject: String(number) })) }] : []),
    ] });
    const title = el("h3", { id: "silences-title", text: "Silences" });
    const section = el("section", { "aria-labelledby": "silences-title", hidden: true }, title, silent.element);
    super({ session, id: "alerts-title", title: "Alerts", none: ["No alert", "Rules and receivers of alerts are in service.toml."], head: [actionButton(session, "alerts.silence", {}, more)], more: [alerts.element] });
    this.element.append(section);
    Object.assign(this, { _alerts: alerts, _silent: silent, _section: section });
  }

  path() {
    return "api/alerts";
  }

  answered({ alerts, silences }) {
    this._alerts.show(alerts);
    this.empty(alerts.length === 0);
    this._silent.show(silences);
    this._section.hidden = silences.length === 0;
  }
}

function subjectOf({ kind, federation, name }) {
  return kind === "device" ? el("a", { href: deviceRoute({ federation, device: name }), text: name }) : `${kind} ${name}`;
}

function silenceButton(session, { kind, name }, more) {
  return kind === "device" ? actionButton(session, "alerts.silence", {}, { ...more, values: { where: `device=${name}`, lasts: "2h" }, subject: name }) : null;
}
