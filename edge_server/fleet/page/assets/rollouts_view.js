/** Rollouts of model versions, the newest first. */

import { el } from "../dom.js";
import { countText, momentText, UNKNOWN } from "../units.js";
import { actionButton } from "./action_dialog.js";
import { mark } from "./device_parts.js";
import { Listing } from "./listing.js";
import { ListView } from "./list_view.js";

const LONGEST_NAME = 40;

/** A button that returns all devices of a version to the model before. */
export const withdrawButton = (session, { version, federation }, more) =>
  actionButton(session, "rollouts.withdraw", { version, federation }, { ...more, values: { job: `withdraw-${version}`.slice(0, LONGEST_NAME) } });
const PHASES = { gathering: "busy", running: "busy", stopping: "warn", stopped: "bad", finished: "good" };

/** The section. */
export class RolloutsView extends ListView {
  constructor(session) {
    const columns = [
      { head: "Version", kind: "value-cell", cell: ({ version, active }) => (active ? `${version} (active)` : version) },
      { head: "Phase", cell: ({ phase }) => mark(PHASES[phase] ?? "rest", phase) },
      { head: "Groups open", cell: ({ groups, opened }) => (groups ? `${Math.min(opened + 1, groups)} of ${groups}` : UNKNOWN) },
      { head: "Devices", kind: "value-cell", cell: ({ devices }) => Object.entries(devices).map(([status, count]) => `${countText(count)} ${status}`).join(", ") || UNKNOWN },
      { head: "Began", cell: ({ began_at: at }) => momentText(at) },
      { head: "Ended", cell: ({ ended_at: at }) => momentText(at) },
      { head: "Why", kind: "value-cell", cell: ({ why }) => why || UNKNOWN },
      ...(session.action("rollouts.stop") ? [{ head: "Change", cell: (row) => this._changes(row) }] : []),
    ];
    const listing = new Listing({ caption: "Rollouts, the newest first", columns, id: ({ id }) => id });
    const versions = new Listing({ caption: "Model versions, the newest first", id: ({ version }) => version, columns: [
      { head: "Version", cell: ({ version, active }) => (active ? `${version} (active)` : version) },
      { head: "Federation", cell: ({ federation }) => federation },
      { head: "Made", cell: ({ created_at: at }) => momentText(at) },
      ...(session.action("rollouts.start") ? [{ head: "Change", cell: (row) => this._start(row) }] : []),
    ] });
    const none = ["No rollout yet", "edge-server rollout VERSION brings a model version to the devices, group by group."];
    super({ session, id: "rollouts-title", title: "Rollouts", none, more: [listing.element] });
    const section = el("section", { "aria-labelledby": "versions-title", hidden: true }, el("h3", { id: "versions-title", text: "Model versions" }), versions.element);
    this.element.append(section);
    Object.assign(this, { _listing: listing, _versions: versions, _section: section });
  }

  path() {
    return "api/rollouts";
  }

  answered({ rollouts, versions }) {
    this._versions.show(versions);
    this._section.hidden = versions.length === 0;
    this._listing.show(rollouts);
    this.empty(rollouts.length === 0);
  }

  _start({ version, federation, signed }) {
    // No device takes a version that nobody has signed.
    if (!signed) return "not signed";
    const job = `rollout-${version}`.slice(0, LONGEST_NAME);
    return el("div", { class: "acts" }, actionButton(this.session, "rollouts.start", { version, federation }, { ...this._more(version), values: { job } }));
  }

  _changes({ version, federation, job }) {
    return el("div", { class: "acts" }, job ? actionButton(this.session, "rollouts.stop", { job }, this._more(version)) : null,
      withdrawButton(this.session, { version, federation }, this._more(version)));
  }

  _more(subject) {
    return { done: ({ said }) => (this.session.say(said), this.load()), subject };
  }
}
