/** The states of a device: their order, their kind, their text. */

const KINDS = {
  training: "busy", fetching: "busy", offered: "busy", waiting: "busy", uploading: "busy", checking: "busy", exporting: "busy",
  done: "good", idle: "rest", missed: "warn", offline: "gone", refused: "bad", declined: "bad", quarantined: "bad", incompatible: "bad",
};

/** All known states, the busiest first: the order of sorting. */
export const STATES = Object.keys(KINDS);

/** The kind of a state, which gives its colour and shape. */
export const kindOf = (state) => KINDS[state] ?? "rest";

/** A state's place among the others; unknown ones come last. */
export function orderOf(state) {
  const place = STATES.indexOf(state);
  return place < 0 ? STATES.length : place;
}

/** A state in words: with its epoch while it trains, with the reason where there is one. */
export function stateText({ state, epoch, epochs, reason, ineligible_because: because }) {
  if (state === "training" && epoch !== null && epoch !== undefined) {
    return epochs ? `training ${epoch}/${epochs}` : `training ${epoch}`;
  }
  const why = reason || (state === "idle" || state === "declined" ? because : "");
  return why ? `${state}: ${why}` : `${state}`;
}

/** The trained share of a device's epochs, or null. */
export function trained({ state, epoch, epochs }) {
  return state === "training" && epochs ? Math.min(1, (epoch ?? 0) / epochs) : null;
}

/** Refusals by reason, the most frequent first: `not-finite 2, harmful 1`. */
export function refusedText(refused) {
  const counted = Object.entries(refused ?? {}).sort((one, other) => other[1] - one[1]);
  return counted.map(([reason, count]) => `${reason} ${count}`).join(", ");
}
