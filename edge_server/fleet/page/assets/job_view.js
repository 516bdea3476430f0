/** One job: what it runs and when, its runs, and the end of the newest run's log. */

import { mark } from "../dom.js";
import { momentText, UNKNOWN } from "../units.js";
import { DetailView, LogLines, part } from "./detail_view.js";
import { devicesOf, jobButtons, jobState } from "./jobs_view.js";
import { Listing } from "./listing.js";

/** The page of the job in the address. */
export class JobView extends DetailView {
  constructor(session) {
    const runs = new Listing({ caption: "Runs, the newest first", id: ({ name }) => name, columns: [
      { head: "Run", kind: "value-cell", cell: ({ name }) => name },
      { head: "State", cell: ({ phase }) => jobState(phase) },
      { head: "By", cell: ({ by }) => by },
      { head: "Attempts", cell: ({ attempt }) => String(attempt) },
      { head: "Began", cell: ({ began_at: at }) => momentText(at) },
      { head: "Ended", cell: ({ ended_at: at }) => momentText(at) },
      { head: "Why", kind: "value-cell", cell: ({ why }) => why || UNKNOWN },
    ] });
    const log = new LogLines("Log of the newest run");
    const parts = [part("runs-title", "Runs", runs.element), part("job-log-title", "Log of the newest run", log.element)];
    super({ session, id: "job-title", back: { href: "#jobs", text: "All jobs" }, more: parts });
    Object.assign(this, { _runs: runs, _log: log, _parts: parts });
  }

  name({ path: [job] }) {
    return job;
  }

  path() {
    return `api/job/${encodeURIComponent(this.route.path[0])}`;
  }

  shown(job) {
    const [runs, log] = this._parts;
    mark(runs, "hidden", !job?.runs.length);
    mark(log, "hidden", !job?.log.length);
    this._runs.show(job?.runs ?? []);
    this._log.show(job?.log ?? []);
  }

  buttonsOf(job) {
    return jobButtons(this.session, job, (result) => this.done(result));
  }

  factsOf(job) {
    return [
      ["State", jobState(job.state)],
      ["Why", job.why || UNKNOWN],
      ["What", job.what],
      ["Federation", job.federation],
      ["Schedule", job.schedule || "once"],
      ["Next", momentText(job.next_at)],
      ["Devices", devicesOf(job)],
      ["Needs", job.min_eligible ? `${job.min_eligible} devices online` : UNKNOWN],
      ["Last ended", momentText(job.ended_at)],
      ["Missed", job.missed ? `${job.missed} times: a run was still on` : UNKNOWN],
      ["Added by", job.owner],
    ];
  }
}
