/** Says to screen readers that a round has closed or the run has ended: not more often than one can listen. */

import { percentText } from "./units.js";

const APART_MS = 5000;

/** What is worth saying of a change, or null. */
export function worthSaying(state, before) {
  const { run, history } = state;
  if (!run || !before.run) return null;
  if (run.outcome && !before.run.outcome) return `The run has ended: ${run.outcome}.`;
  const last = history.at(-1);
  if (!last || !before.history.length && last.round > 1 || last.round === before.history.at(-1)?.round) return null;
  const accuracy = last.test_accuracy === null || last.test_accuracy === undefined ? "" : `, test accuracy ${percentText(last.test_accuracy)}`;
  return `Round ${last.round} of ${run.rounds} closed${accuracy}.`;
}

/** Writes into a live region; of what comes too soon only the last is said. */
export class Teller {
  constructor(region) {
    this._region = region;
    this._last = 0;
    this._timer = null;
  }

  /** Say what has changed, if it is worth saying. */
  tell(state, before) {
    const text = worthSaying(state, before);
    if (text === null) return;
    clearTimeout(this._timer);
    this._timer = setTimeout(() => this._say(text), Math.max(0, this._last + APART_MS - Date.now()));
  }

  _say(text) {
    this._last = Date.now();
    this._region.textContent = text;
  }
}
