/** The page's state: pure functions from a state and a received value to the next state. */

/** The initial state. `fleet` is null until the first list of devices, then a Map by name; `watched` is set once the run was seen live. */
export const NOTHING = Object.freeze({
  link: { state: "loading" },
  run: null,
  history: [],
  fleet: null,
  clock: 0,
  watched: false,
});

/** The run's new value; a different run clears everything known of the earlier one. */
export function withRun(state, run, now) {
  const { history, ...facts } = run;
  const kept = state.run && state.run.run === facts.run ? state : { ...NOTHING, link: state.link };
  const lines = history ? history.reduce(addRound, kept.history) : kept.history;
  const clock = facts.now ? facts.now - now : kept.clock;
  return { ...kept, run: facts, history: lines, clock, watched: kept.watched || facts.live };
}

/** Add a closed round; a repeated round replaces its earlier value. */
export function withRound(state, line) {
  return { ...state, history: addRound(state.history, line) };
}

function addRound(history, line) {
  if (!history.length || history.at(-1).round < line.round) return [...history, line];
  const others = history.filter((known) => known.round !== line.round);
  return [...others, line].sort((a, b) => a.round - b.round);
}

/** Apply changed, new and removed devices; the rows of all others stay the same objects. */
export function withFleet(state, change) {
  const fleet = new Map(change.full ? [] : (state.fleet ?? []));
  for (const row of change.devices ?? []) fleet.set(row.device, row);
  for (const name of change.gone ?? []) fleet.delete(name);
  return { ...state, fleet };
}

/** The connection: loading, live, lost (with `retryAt`), ended or failed (with `message`). */
export function withLink(state, link) {
  return { ...state, link };
}

/** The run is over. */
export function withEnd(state, end) {
  const run = state.run && { ...state.run, outcome: end.outcome, deadline_at: null };
  return { ...state, run, link: { state: "ended" } };
}

/** The last round that is known, or null. */
export const lastRound = (state) => state.history.at(-1)?.round ?? null;

/** The server's time now (seconds since 1970), by its own clock; of a finished run the time that it ended. */
export const serverNow = (state, now) => now + state.clock;

/** Holds the state and tells one listener of each change. */
export class Store {
  constructor(changed) {
    this.state = NOTHING;
    this._changed = changed;
  }

  /** Replace the state by what `step(state, ...given)` makes of it. */
  apply(step, ...given) {
    const before = this.state;
    this.state = step(before, ...given);
    this._changed(this.state, before);
  }
}
