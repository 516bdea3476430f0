/** Alerts that are not resolved, and silences. */

import { el } from "../dom.js";
import { momentText } from "../units.js";
import { actionButton } from "./action_dialog.js";
import { alertListing } from "./alert_listing.js";
import { Listing } from "./listing.js";
import { ListView } from "./list_view.js";

/** The section. */
export class AlertsView extends ListView {
  constructor(session) {
    const silences = session.action("alerts.silence");
    const more = { done: ({ said }) => (session.say(said), this.load()) };
    const alerts = alertListing(session, more);
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
