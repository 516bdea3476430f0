/** Announces closed rounds and the end of the run to screen readers, at most every 5 seconds. */

import { figureText, metricOf, nameOf, testedOf } from "./figures.js";
import { ofRounds } from "./units.js";

const APART_MS = 5000;

/** The announcement of a change, or null. */
export function announcement(state, before) {
  const { run, history } = state;
  if (!run || !before.run) return null;
  if (run.outcome && !before.run.outcome) return `The run has ended: ${run.outcome}.`;
  const last = history.at(-1);
  if (!last || !before.history.length && last.round > 1 || last.round === before.history.at(-1)?.round) return null;
  const metric = metricOf(run);
  const value = testedOf(metric, last);
  const figure = value === null ? "" : `, ${nameOf(metric)} ${figureText(metric, value)}`;
  return `Round ${last.round}${ofRounds(run)} closed${figure}.`;
}

/** Writes into a live region; of announcements in quick succession, only the last. */
export class Announcer {
  constructor(region) {
    this._region = region;
    this._last = 0;
    this._timer = null;
  }

  /** Announce a change, if there is anything to announce. */
  announce(state, before) {
    const text = announcement(state, before);
    if (text === null) return;
    clearTimeout(this._timer);
    this._timer = setTimeout(() => this._say(text), Math.max(0, this._last + APART_MS - Date.now()));
  }

  _say(text) {
    this._last = Date.now();
    this._region.textContent = text;
  }
}
