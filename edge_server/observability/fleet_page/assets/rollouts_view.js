/** Rollouts of model versions, the newest first. */

import { countText, momentText, UNKNOWN } from "../units.js";
import { mark } from "./device_parts.js";
import { Listing } from "./listing.js";
import { ListView } from "./list_view.js";

const PHASES = { gathering: "busy", running: "busy", stopping: "warn", stopped: "bad", finished: "good" };

/** The section. */
export class RolloutsView extends ListView {
  constructor(session) {
    const columns = [
      { head: "Version", cell: ({ version, active }) => (active ? `${version} (active)` : version) },
      { head: "Phase", cell: ({ phase }) => mark(PHASES[phase] ?? "rest", phase) },
      { head: "Groups open", cell: ({ groups, opened }) => (groups ? `${Math.min(opened + 1, groups)} of ${groups}` : UNKNOWN) },
      { head: "Devices", kind: "value-cell", cell: ({ devices }) => Object.entries(devices).map(([status, count]) => `${countText(count)} ${status}`).join(", ") || UNKNOWN },
      { head: "Began", cell: ({ began_at: at }) => momentText(at) },
      { head: "Ended", cell: ({ ended_at: at }) => momentText(at) },
      { head: "Why", kind: "value-cell", cell: ({ why }) => why || UNKNOWN },
    ];
    const listing = new Listing({ caption: "Rollouts, the newest first", columns, id: ({ id }) => id });
    const none = ["No rollout yet", "edge-server rollout VERSION brings a model version to the devices, group by group."];
    super({ session, id: "rollouts-title", title: "Rollouts", none, more: [listing.element] });
    this._listing = listing;
  }

  path() {
    return "api/rollouts";
  }

  answered({ rollouts }) {
    this._listing.show(rollouts);
    this.empty(rollouts.length === 0);
  }
}
