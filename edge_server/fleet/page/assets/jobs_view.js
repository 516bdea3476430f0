/** Jobs: state, schedule, next time; starting, pausing and stopping them. */

import { el } from "../dom.js";
import { routeTo } from "../router.js";
import { momentText, UNKNOWN } from "../units.js";
import { actionButton } from "./action_dialog.js";
import { mark } from "./device_parts.js";
import { Listing } from "./listing.js";
import { ListView } from "./list_view.js";

const KINDS = { running: "busy", suspending: "warn", stopping: "warn", suspended: "warn", paused: "warn", waiting: "rest", scheduled: "rest", done: "good", failed: "bad", stopped: "gone" };
const IDLE = ["scheduled", "done", "failed", "stopped", "paused", "suspended"];

/** A job's state. */
export const jobState = (state) => mark(KINDS[state] ?? "rest", state);

/** The section. */
export class JobsView extends ListView {
  constructor(session) {
    const changes = session.action("jobs.stop") ? [{ head: "Change", cell: (row) => this._buttons(row) }] : [];
    const columns = [
      { head: "Job", kind: "value-cell", cell: ({ job }) => el("a", { href: routeTo("jobs", [job]), text: job }) },
      { head: "State", cell: ({ state }) => jobState(state) },
      { head: "Why", kind: "value-cell", cell: ({ why }) => why || UNKNOWN },
      { head: "What", kind: "value-cell", cell: ({ what }) => what },
      { head: "Schedule", kind: "value-cell", cell: ({ schedule }) => schedule || "once" },
      { head: "Next", cell: ({ next_at: at }) => momentText(at) },
      { head: "Devices", kind: "value-cell", cell: devicesOf },
      ...changes,
    ];
    const listing = new Listing({ caption: "Jobs", columns, id: ({ job }) => job });
    const none = ["No job yet", "edge-server jobs add NAME FEDERATION.toml queues a federation, once or by a schedule."];
    const added = ({ said }) => (session.say(said), this.load());
    super({ session, id: "jobs-title", title: "Jobs", none, head: [actionButton(session, "jobs.add", {}, { done: added })], more: [listing.element] });
    this._listing = listing;
  }

  path() {
    return "api/jobs";
  }

  answered({ jobs }) {
    this._listing.show(jobs);
    this.empty(jobs.length === 0);
  }

  _buttons(row) {
    return el("div", { class: "acts" }, jobButtons(this.session, row, ({ said }) => (this.session.say(said), this.load())));
  }
}

/** How many of a job's devices are online, and which they are. */
export const devicesOf = ({ eligible, devices, where }) => `${eligible} of ${devices} online${where ? `, ${where}` : ""}`;

/** What may be done about a job now. */
export function jobButtons(session, { job, state, wanted }, done) {
  const more = { done, subject: job };
  const over = ["done", "failed", "stopped"].includes(state);
  return [
    IDLE.includes(state) ? actionButton(session, "jobs.start", { job }, more) : null,
    wanted === "active" && !over ? actionButton(session, "jobs.pause", { job }, more) : null,
    wanted !== "stopped" && !over ? actionButton(session, "jobs.stop", { job }, more) : null,
  ].filter((button) => button !== null);
}
