/** The rollouts of this run's models: version, progress, devices by status. */

import { el, mark, plainTable } from "./dom.js";
import { ask } from "./events.js";
import { stateMark } from "./fleet_columns.js";
import { countText, momentText } from "./units.js";

const PHASES = { gathering: "busy", running: "busy", stopping: "warn", stopped: "bad", finished: "good" };
const HEADS = ["Version", "Phase", "Groups open", "Devices", "Began", "Ended", "Why"];
const SOONEST_MS = 3000;

/** A row per rollout; requested while visible, as another process runs rollouts. */
export class RolloutsTable {
  constructor() {
    this._asked = 0;
    this._made = "[]";
    this._table = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Rollouts" });
    this.element = el("section", { "aria-labelledby": "rollouts-title", hidden: true }, el("h3", { id: "rollouts-title", text: "Rollouts" }), this._table);
  }

  /** Request again, at most every `SOONEST_MS`. */
  async look() {
    if (Date.now() - this._asked < SOONEST_MS) return;
    this._asked = Date.now();
    try {
      this.show((await ask("api/rollouts")).rollouts);
    } catch {
      // The banner reports a lost server.
    }
  }

  /** Draw the rollouts if they changed. */
  show(rollouts) {
    const made = JSON.stringify(rollouts);
    mark(this.element, "hidden", rollouts.length === 0);
    if (made === this._made) return;
    this._made = made;
    this._table.replaceChildren(plainTable("Rollouts, the latest first", HEADS, rollouts.map(line)));
  }
}

function line({ version, active, phase, groups, opened, devices, began_at: began, ended_at: ended, why }) {
  const counted = Object.entries(devices).map(([status, count]) => `${countText(count)} ${status}`).join(", ");
  return [active ? `${version} (active)` : version, stateMark(PHASES[phase] ?? "rest", phase), groups ? `${Math.min(opened + 1, groups)} of ${groups}` : "-",
    counted || "-", momentText(began), momentText(ended), why || "-"];
}
